# Completion of queuebox-server for fish.
function __queuebox_server_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l candidates ($words[1] __complete $words[2..-1] "$last" 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path "$last"
    end
end
complete -c queuebox-server -f -a '(__queuebox_server_complete)'
