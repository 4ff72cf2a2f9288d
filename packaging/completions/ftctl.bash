# SPDX-License-Identifier: GPL-2.0-only
# bash completion for ftctl(8) and ftctld(8)

_ftctl_devices()
{
    local path
    for path in /sys/class/net/*; do
        echo "${path##*/}"
    done
}

_ftctl_instances()
{
    local path
    for path in /run/ftctl/*.sock; do
        [[ -e $path ]] || continue
        path=${path##*/}
        echo "${path%.sock}"
    done
}

# Words of a FILTER that are not used yet.
_ftctl_filter_words()
{
    local word used=" ${COMP_WORDS[*]:0:COMP_CWORD} "
    for word in proto src dst sport dport dev state tunnel; do
        [[ $used == *" $word "* ]] || echo "$word"
    done
}

_ftctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local commands="attach detach rpf status flows flush stats explain tunnel filter monitor top doctor config help"
    local command='' sub='' words='' i
    COMPREPLY=()

    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            -i | --instance) ((i++)) ;;
            -*) ;;
            *)
                if [[ -z $command ]]; then
                    command=${COMP_WORDS[i]}
                elif [[ -z $sub ]]; then
                    sub=${COMP_WORDS[i]}
                fi
                ;;
        esac
    done

    case $prev in
        -i | --instance) words=$(_ftctl_instances) ;;
        --mode) words="auto xdp tc" ;;
        --rpf) words="off loose strict loose,log strict,log log" ;;
        dev) words=$(_ftctl_devices) ;;
        proto) words="tcp udp gre icmp" ;;
        state) words="pending live closing stale refused" ;;
        mode) words="ipip ip6ip6 4in6 6in4" ;;
        ttl | tos | flowlabel) words="inherit" ;;
        encaplimit) words="none" ;;
        src | dst | sport | dport | local | remote) return ;;
    esac
    if [[ $prev == tunnel && ($command == flows || $command == flush) ]]; then
        words="ipip ip6ip6 4in6 6in4 $(_ftctl_devices)"
    fi

    if [[ -z $words ]]; then
        case $command in
            '') words="$commands --instance --json --pretty --version --help" ;;
            attach) words="$(_ftctl_devices) --mode --rpf --no-track --force --dry-run" ;;
            detach) words="$(_ftctl_devices) --all" ;;
            flows) words="$(_ftctl_filter_words) --count" ;;
            flush) words=$(_ftctl_filter_words) ;;
            explain) words=$([[ -z $sub ]] && echo "tcp udp" || echo dev) ;;
            tunnel)
                case $sub in
                    '') words="add del list" ;;
                    add) words="mode local remote ttl tos encaplimit flowlabel dev" ;;
                    del) words=$(_ftctl_devices) ;;
                esac
                ;;
            filter)
                case $sub in
                    '') words="add del list flush load" ;;
                    add) words="dev src dst proto sport dport inner accept drop comment id" ;;
                    load)
                        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                        return
                        ;;
                esac
                ;;
            rpf) words=$([[ -z $sub ]] && _ftctl_devices || echo "off loose strict loose,log strict,log log") ;;
            config)
                if [[ -z $sub ]]; then
                    words=check
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                    return
                fi
                ;;
            help) words=$commands ;;
        esac
        [[ $cur == -* && -n $command ]] && words+=" --instance --json --pretty --help"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

_ftctld()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    case $prev in
        --config) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        -i | --instance) COMPREPLY=() ;;
        *) mapfile -t COMPREPLY < <(compgen -W "--instance --config --version --help" -- "$cur") ;;
    esac
}

complete -F _ftctl ftctl
complete -F _ftctld ftctld
