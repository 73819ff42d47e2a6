package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestCompletion has cobra complete where no supervisor runs: names of commands
// and of flags, and nothing that it would have to ask for.
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
		"cp ":                   ":2",
		"top --sort ":           "memory",
		"kube generate --out":   "--output",
		"events --output=":      "yaml",
		"port-forward a 80 --a": "--address",
	} {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete"}, strings.Split(typed, " ")...))
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %q does not have %q", typed, err, out.String(), want)
		}
	}
}

// TestCompletionScripts has each shell's script written, and bash read its own.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
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
