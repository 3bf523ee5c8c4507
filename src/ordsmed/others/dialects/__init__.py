"""A menu: each file translates the command lines of one other code and says where each flag goes."""
