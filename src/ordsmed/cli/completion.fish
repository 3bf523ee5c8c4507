# Completion of ordsmed in fish; `ordsmed help completion` tells where it belongs.

function __ordsmed_offers # KEY: a word a line, behind a tab what it means; 1 where there is no such key
    switch "$argv[1]"
@CASES@
        case '*'
            return 1
    end
end

function __ordsmed_key # what is to be completed: of a verb's words, and the one that is not finished
    set -l current $argv[-1]
    set -l words $argv[1..-2]
    set -l verb "$words[1]"
    set -l begin 2
    set -l place 1
    set -l flag ''
    if test (count $words) -eq 0
        echo ''
        return
    end
    if set -q words[2]; and __ordsmed_offers "$verb $words[2] -" >/dev/null
        set verb "$verb $words[2]"
        set begin 3
    end
    for word in $words[$begin..-1]
        if test -n "$flag"
            set flag ''
        else if not string match -q -- '-*' $word
            set place (math $place + 1)
        else if __ordsmed_offers "$verb $word" >/dev/null
            set flag $word
        end
    end
    if test -n "$flag"
        echo "$verb $flag"
    else if string match -q -- '-*=*' $current
        echo "$verb "(string split -m 1 = -- $current)[1]
    else if string match -q -- '-*' $current
        echo "$verb -"
    else if string match -q -- '*=*' $current
        echo '='
    else if __ordsmed_offers "$verb $place" >/dev/null
        echo "$verb $place"
    else
        echo "$verb +"
    end
end

function __ordsmed_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l before ''
    set -l key (__ordsmed_key $words[2..-1] "$current")
    if string match -q -- '*=*' $current
        set before (string split -m 1 = -- $current)[1]=
    end
    for line in (__ordsmed_offers "$key")
        if test "$line" = '<files>'\t
            __fish_complete_path (string sub -s (math (string length -- "$before") + 1) -- "$current") | while read -l path
                string match -qr '\.(lock|holder)\b' -- $path; and continue # beside a folder that is worked in
                echo "$before$path"
            end
        else
            echo "$before$line"
        end
    end
end

complete -c ordsmed -f -a '(__ordsmed_complete)'
