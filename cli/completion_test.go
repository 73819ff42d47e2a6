package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// TestCompletion completes without an engine: names of commands and of flags, and nothing that needs the engine.
func TestCompletion(t *testing.T) {
	t.Setenv("BULKHEAD_DATA", t.TempDir())
	t.Setenv("BULKHEAD_STATE", t.TempDir())
	for typed, want := range map[string]string{
		"port-":                 "port-forward",
		"logs ":                 ":4",
		"logs --ta":             "--tail",
		"ps -o ":                "wide",
		"image rm ":             ":4",
		"completion ":           "fish",
		"exec -c ":              ":4",
		"run --network ":        "none",
		"system ":               "prune",
		"template rm ":          ":4",
		"volume rm ":            ":4",
		"volume resize a ":      ":4",
		"volume create --sh":    "--shared",
		"cp ":                   ":2",
		"top --sort ":           "memory",
		"kube generate --out":   "--output",
		"events --output=":      "yaml",
		"port-forward a 80 --a": "--address",
	} {
		var out bytes.Buffer
		root := newRoot(&app.App{Out: &out, Err: &out})
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete"}, strings.Split(typed, " ")...))
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %q does not have %q", typed, err, out.String(), want)
		}
	}
}

// TestCompletionScripts writes the script of each shell. Bash must accept its script.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		root := newRoot(&app.App{Out: &out, Err: &out})
		root.SetArgs([]string{"completion", shell})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "__complete") {
			t.Errorf("%s: %v, %d bytes", shell, err, out.Len())
		}
		if shell == "bash" {
			check := exec.Command("bash", "-n")
			check.Stdin = &out
			if said, err := check.CombinedOutput(); err != nil {
				t.Errorf("bash: %v: %s", err, said)
			}
		}
	}
}

// TestBashAlone completes in a bash without the package bash-completion.
func TestBashAlone(t *testing.T) {
	var script bytes.Buffer
	root := newRoot(&app.App{Out: &script, Err: &script})
	root.SetArgs([]string{"completion", "bash"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	script.WriteString(`
compopt() { :; } # for who is not completing
bulkhead() { printf '%s\n' "$*" >&3; printf '%s\n' web web-2 db: :4; }
for COMP_LINE in "bulkhead exec w" "bulkhead exec " "bulkhead cp -c x web:/e"; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COLUMNS=80
    __start_bulkhead && echo "${COMPREPLY[*]}"
done
`)
	bash := exec.Command("bash", "--norc", "--noprofile", "-c", `exec 3>&1; source /dev/stdin`)
	bash.Env, bash.Stdin = []string{"PATH=" + os.Getenv("PATH")}, &script
	out, err := bash.CombinedOutput()
	want := "__complete exec w\nweb web-2\n__complete exec \nweb web-2 db:\n__complete cp -c x web:/e\n\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
