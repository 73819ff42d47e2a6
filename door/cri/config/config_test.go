package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// all sets every setting to a value other than its default.
var all = []string{
	"--listen", "unix:///tmp/a b.sock", "--kubelet-root=/k", "--log-dir", "/l,with a comma", "--log-dir=/m",
	"--network=user", "--cni-conf-dir=/c", "--cni-bin-dir=/b", "--cni-bin-dir=/d",
	"--warm=namespace", "--default-memory=1Gi", "--default-cpus=2", "--runtime-handler=kvm=kvm,no-fork", "--runtime-handler=tcg",
	"--metrics-address=127.0.0.1:1338", "--trace-endpoint=http://127.0.0.1:4318", "--nri", "--log-level=debug",
	"--log-format=json",
}

// TestArgs: another program gets the same settings from the arguments.
func TestArgs(t *testing.T) {
	t.Parallel()
	preset, _ := parse(t, nil)
	for name, args := range map[string][]string{"nothing": nil, "all": all} {
		first, f := parse(t, args)
		second, _ := parse(t, first.Args())
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := first.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, s := range first.settings() {
			if name == "all" && (!f.Changed(s.Key) || cmp.Equal(s.Value, preset.settings()[i].Value)) {
				t.Errorf("this test does not set %s", s.Key)
			}
		}
	}
}

func parse(t *testing.T, args []string) (c Config, f *pflag.FlagSet) {
	t.Helper()
	f = pflag.NewFlagSet("cri", pflag.ContinueOnError)
	c.Add(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, f
}

// TestMost limits the number of settings to fifteen, so that node owners can read all of them.
func TestMost(t *testing.T) {
	t.Parallel()
	if n := len(new(Config).settings()); n > 15 {
		t.Errorf("%d settings, want at most 15", n)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ arg, err string }{
		{arg: "--listen=unix:///run/cri.sock"},
		{arg: "--log-level=warn"},
		{"--listen=/run/cri.sock", `listen "/run/cri.sock" must be unix://`},
		{"--listen=unix://run/cri.sock", "listen"},
		{"--listen=tcp://127.0.0.1:1", "listen"},
		{"--listen=", "listen"},
		{"--kubelet-root=k", `kubelet-root "k" is not an absolute path`},
		{"--log-dir=", `log-dir "" is not an absolute path`},
		{"--cni-conf-dir=c", `cni-conf-dir "c" is not an absolute path`},
		{"--cni-bin-dir=", `cni-bin-dir "" is not an absolute path`},
		{"--network=host", `network "host" must be cni or user`},
		{"--log-level=loud", `log-level "loud" must be`},
		{"--runtime-handler=a=hot", `runtime-handler "a=hot": option "hot"`},
		{arg: "--metrics-address=[::1]:0"},
		{arg: "--trace-endpoint=https://collector/v1/traces"},
		{"--trace-endpoint=127.0.0.1:4318", `trace-endpoint "127.0.0.1:4318" must be an http or https URL`},
		{"--trace-endpoint=http:///x", "trace-endpoint"},
		{"--metrics-address=:1338", `metrics-address ":1338" must be IP:PORT`},
		{"--log-format=xml", `log-format "xml" must be`},
	} {
		c, _ := parse(t, []string{tc.arg})
		err := c.Check()
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", tc.arg, err, tc.err)
		}
	}
	c, _ := parse(t, []string{"--listen=unix:///run/cri.sock"})
	if c.Socket() != "/run/cri.sock" {
		t.Error(c.Socket())
	}
}

// TestFile: a file sets the settings without a flag, and errors name its line.
func TestFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		args       []string
		want       []string // arguments with the same meaning
		err        string
	}{
		{name: "nothing"},
		{name: "comments", text: "# listen = 'x'\n\n"},
		{
			name: "all", text: `
				listen = "unix:///tmp/a b.sock"
				kubelet-root = '/k'
				log-dir = ["/l,with a comma", "/m"]
				network = "user"
				cni-conf-dir = "/c"
				cni-bin-dir = ["/b", "/d"]
				warm = "namespace"
				default-memory = "1Gi"
				default-cpus = "2"
				runtime-handler = ["kvm=kvm,no-fork", "tcg"]
				metrics-address = "127.0.0.1:1338"
				trace-endpoint = "http://127.0.0.1:4318"
				nri = true
				log-level = "debug"
				log-format = "json"`,
			want: all,
		},
		{
			name: "a flag takes precedence", text: "kubelet-root = '/k'\nlog-dir = ['/l', '/m']",
			args: []string{"--log-dir=/n"}, want: []string{"--kubelet-root=/k", "--log-dir=/n"},
		},
		{name: "a flag with the default takes precedence", text: "log-level = 'debug'", args: []string{"--log-level=info"}},
		{name: "unknown", text: "\nlisten = 'unix:///s'\nlissten = 'x'", err: `line 3: unknown key (key "lissten")`},
		{name: "another case", text: "Listen = 'x'", err: `line 1: unknown key (key "Listen")`},
		{name: "unknown table", text: "[a]\nb = 1", err: `line 1: unknown key (key "a")`},
		{name: "unknown table below", text: "\n[a.b]\nc = 1", err: `line 2: unknown key (key "a.b")`},
		{name: "unknown tables", text: "\n[[a]]\n[[a]]", err: `line 3: unknown key (key "a")`},
		{name: "a table instead of a string", text: "[listen]", err: `line 1: must be a string (key "listen")`},
		{name: "a key below a string", text: "\nlisten.a = 1", err: `line 2: unknown key (key "listen.a")`},
		{name: "a string for a switch", text: "nri = 'yes'", err: `line 1: must be true or false (key "nri")`},
		{name: "a wrong switch and its flag", text: "nri = 1", args: []string{"--nri"}, err: "line 1: must be true or false"},
		{name: "a number", text: "warm = 1", err: `line 1: must be a string (key "warm")`},
		{name: "a string for a list", text: "\n\nlog-dir = '/l'", err: `line 3: must be a list of strings (key "log-dir")`},
		{name: "numbers", text: "log-dir = ['/l', 1]", err: `line 1: must be a list of strings (key "log-dir")`},
		{name: "none", text: "log-dir = []", err: `line 1: must not be an empty list (key "log-dir")`},
		{name: "a wrong value and its flag", text: "warm = 1", args: []string{"--warm=on"}, err: "line 1: must be a string"},
		{name: "twice", text: "warm = 'on'\nwarm = 'on'", err: `line 2: `},
		{name: "no TOML", text: "listen: x", err: "line 1: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, f := parse(t, tc.args)
			err := c.Load(path, f)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), path+": "+tc.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			want, _ := parse(t, tc.want)
			if diff := cmp.Diff(want, c); diff != "" || err != nil {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
}

func TestFileMissing(t *testing.T) {
	t.Parallel()
	c, f := parse(t, nil)
	if err := c.Load(filepath.Join(t.TempDir(), "no"), f); err == nil {
		t.Error("a missing file is accepted")
	}
	if err := c.Load(os.DevNull, f); err != nil {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(large, f); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Error(err)
	}
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Chmod(large, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(large, f); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a world-writable file: %v", err)
	}
}

// TestDocumented: the table in the documentation and the example file describe exactly the existing settings.
func TestDocumented(t *testing.T) {
	t.Parallel()
	var table, file strings.Builder
	c, _ := parse(t, nil)
	for _, s := range c.settings() {
		preset := fmt.Sprintf("%q", s.Preset)
		if _, ok := s.Preset.(bool); ok {
			preset = fmt.Sprint(s.Preset)
		}
		preset = strings.ReplaceAll(preset, `" "`, `", "`)
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", s.Key, preset, strings.ReplaceAll(s.Help, "|", `\|`))
		fmt.Fprintf(&file, "\n# %s%s\n#%s = %s\n", strings.ToUpper(s.Help[:1]), s.Help[1:], s.Key, preset)
	}
	for path, want := range map[string]string{"docs/cri.md": table.String(), "deploy/config.toml": file.String()} {
		text, err := os.ReadFile(filepath.Join("../../..", path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks:\n%s", path, want)
		}
	}
	// Without comment signs, the example must contain the defaults.
	text, err := os.ReadFile("../../../deploy/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(rest, " ") {
			line = rest
		}
		lines = append(lines, line)
	}
	var read Config
	if err := read.decode(strings.Join(lines, ""), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, read); diff != "" {
		t.Error(diff)
	}
}
