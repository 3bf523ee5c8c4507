#compdef ordsmed
# Completion of ordsmed in zsh; `ordsmed help completion` tells where it belongs.

__ordsmed_offers() { # KEY: a word a line, behind a tab what it means; 1 where there is no such key
    case "$1" in
@CASES@
    *) return 1 ;;
    esac
}

_ordsmed() {
    local verb=${(Q)words[2]} key="" word line place=1 number=3
    local -a plain open
    if (( CURRENT > 2 )); then
        if (( CURRENT > 3 )) && __ordsmed_offers "$verb ${words[3]} -" > /dev/null; then
            verb="$verb ${words[3]}" number=4
        fi
        for (( ; number < CURRENT; number++ )); do
            word=${(Q)words[number]}
            if [[ $word != -* ]]; then
                (( place++ ))
            elif __ordsmed_offers "$verb $word" > /dev/null; then
                (( ++number == CURRENT )) && key="$verb $word"
            fi
        done
        word=${words[CURRENT]}
        if [[ -n $key ]]; then
            :
        elif [[ $word == -*=* ]]; then
            key="$verb ${word%%=*}"
        elif [[ $word == -* ]]; then
            key="$verb -"
        elif [[ $word == *=* ]]; then
            key="="
        elif __ordsmed_offers "$verb $place" > /dev/null; then
            key="$verb $place"
        else
            key="$verb +"
        fi
        [[ $word == *=* ]] && compset -P '*='
    fi
    local files=0
    __ordsmed_offers "$key" | while IFS= read -r line; do
        word=${${line%%$'\t'*}//:/\\:}
        if [[ $word == "<files>" ]]; then
            files=1
        elif [[ $word == *= ]]; then
            open+=("$word:${line#*$'\t'}")
        else
            plain+=("$word:${line#*$'\t'}")
        fi
    done
    (( ${#plain} )) && _describe -t words word plain
    (( ${#open} )) && _describe -t settings setting open -S ''
    (( files )) && _files -F '(*.lock *.holder)' # those are beside a folder that is worked in
    return 0
}

if [[ ${funcstack[1]} == _ordsmed ]]; then # from a folder of fpath
    _ordsmed "$@"
else
    compdef _ordsmed ordsmed
fi
