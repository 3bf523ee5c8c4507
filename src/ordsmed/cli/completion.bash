# Completion of ordsmed in bash; `ordsmed help completion` tells where it belongs.

__ordsmed_offers() { # KEY: a word a line, behind a tab what it means; 1 where there is no such key
    case "$1" in
@CASES@
    *) return 1 ;;
    esac
}

_ordsmed_key() { # what is to be completed: of a verb's WORDS, the last one unfinished
    local last=$(($# - 1)) verb=$1 begin=1 place=1 number word words=("$@")
    ((last == 0)) && return
    if ((last > 1)) && __ordsmed_offers "$verb $2 -" > /dev/null; then
        verb="$verb $2" begin=2
    fi
    for ((number = begin; number < last; number++)); do
        word=${words[number]}
        if [[ $word != -* ]]; then
            ((place++))
        elif __ordsmed_offers "$verb $word" > /dev/null; then
            ((++number == last)) && echo "$verb $word" && return
        fi
    done
    case "${words[last]}" in
    -*=*) echo "$verb ${words[last]%%=*}" ;;
    -*) echo "$verb -" ;;
    *=*) echo "=" ;;
    *) __ordsmed_offers "$verb $place" > /dev/null && echo "$verb $place" || echo "$verb +" ;;
    esac
}

_ordsmed() {
    local number key word current before="" words=() IFS=$' \t\n'
    for ((number = 1; number <= COMP_CWORD; number++)); do # bash takes words apart at =
        if ((number > 1)) && [[ ${COMP_WORDS[number]} == = || ${COMP_WORDS[number - 1]} == = ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[number]}
        else
            words+=("${COMP_WORDS[number]}")
        fi
    done
    key=$(_ordsmed_key "${words[@]}")
    current=${words[${#words[@]} - 1]}
    if [[ $current == *=* ]]; then
        [[ $COMP_WORDBREAKS == *=* ]] || before=${current%%=*}=
        current=${current#*=}
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        if [[ $word == "<files>" ]]; then
            _ordsmed_files
        elif [[ $word == "$current"* ]]; then
            COMPREPLY+=("$before$word")
        fi
    done < <(__ordsmed_offers "$key")
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2> /dev/null
    fi
    return 0
}

_ordsmed_files() { # what begins as $current; folders with a slash
    local word
    if [[ $current == [~\$\"\']* ]]; then # bash knows how
        compopt -o bashdefault -o default 2> /dev/null
        return
    fi
    while IFS= read -r word; do
        [[ $word == *.lock || $word == *.holder ]] && continue # beside a folder that is worked in
        [[ -d $word ]] && word+=/
        printf -v word %q "$word"
        COMPREPLY+=("$before$word")
    done < <(compgen -f -- "$current")
}

complete -F _ordsmed ordsmed
