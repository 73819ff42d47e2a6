// Command mutants puts small faults into a package, one at a time, and lists the faults that the package's quick
// tests do not notice. Gremlins creates the faults. This program runs it as the project builds, leaves out
// meaningless faults (excused.txt), and prints the score.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// enough is the percentage of noticeable faults that the tests of a package at a boundary must notice.
const enough = 85

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: mutants GREMLINS TAGS PACKAGE-DIRECTORY")
		os.Exit(2)
	}
	s, err := run(os.Args[1], os.Args[2], filepath.Clean(os.Args[3]))
	if err == nil {
		fmt.Print(s)
		err = s.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run runs gremlins on the package in dir, with its tests of -short.
func run(gremlins, tags, dir string) (score, error) {
	list, err := os.ReadFile("hack/mutants/excused.txt")
	if err != nil {
		return score{}, err
	}
	known, err := parseExcused(string(list))
	if err != nil {
		return score{}, err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return score{}, err
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "out.json")
	cmd := alone(gremlins, "unleash", "./"+dir, "--output", out,
		"--exclude-files", "testdata/", "--invert-logical", "--invert-loopctrl", "--timeout-coefficient", "10")
	path, err := wrapGo(temp)
	if err != nil {
		return score{}, err
	}
	// vet would refuse some faults before a test sees them.
	flags := "GOFLAGS=-short -vet=off -ldflags=-s -tags=" + strings.ReplaceAll(tags, " ", ",")
	cmd.Env = append(os.Environ(), flags, "TMPDIR="+temp, "PATH="+path)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return score{}, fmt.Errorf("run gremlins on %s: %w", dir, err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return score{}, err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return score{}, fmt.Errorf("read the report of gremlins: %w", err)
	}
	return r.judge(dir, known, os.ReadFile)
}

// alone returns a command that sees and signals only its own processes, which end with it. With a fault in the
// wrong place, a test could kill all processes of its user.
func alone(name string, args ...string) *exec.Cmd {
	flags := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--user", "--map-current-user")
	}
	return exec.Command("unshare", append(append(flags, "--", name), args...)...)
}

// module is the path by which gremlins tests a package with a name that differs from its directory, such as agentv1
// in api/agent/v1. The root of the module has no tests, so the command fails, and gremlins would count every fault
// as noticed.
const module = "github.com/bulkhead-project/bulkhead"

// wrapGo writes a program "go" into dir that tests the working directory, where gremlins runs it, instead of the
// module's root. It downloads no modules ahead, because gremlins asks for all of them, and some are not to be had. It
// returns a PATH that finds this program first.
func wrapGo(dir string) (string, error) {
	gotool, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf(`#!/bin/sh
[ "$1 $2" = "mod download" ] && exit
for arg; do shift; [ "$arg" = %s ] && arg=.; set -- "$@" "$arg"; done
exec '%s' "$@"
`, module, gotool)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
		return "", err
	}
	return dir + string(filepath.ListSeparator) + os.Getenv("PATH"), nil
}

// report is the output of gremlins.
type report struct {
	Files []struct {
		Name      string  `json:"file_name"` // below the package's directory
		Mutations []fault `json:"mutations"`
	} `json:"files"`
}

type fault struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// score counts the results of the faults.
type score struct {
	noticed, excused int
	untried          int // in conditions of a switch, which Go's coverage does not record
	survivors        []string
	stale            []excuse // of the package, without a survivor
}

// judge counts the faults of the package in dir. A fault that no test reaches survives. A fault that makes a test
// hang is noticed.
func (r report) judge(dir string, known []excuse, read func(string) ([]byte, error)) (score, error) {
	var s score
	used := map[excuse]bool{}
	for _, f := range r.Files {
		path := filepath.Join(dir, f.Name)
		b, err := read(path)
		if err != nil {
			return s, err
		}
		lines := strings.Split(string(b), "\n")
		for _, m := range f.Mutations {
			switch m.Status {
			case "KILLED", "TIMED OUT":
				s.noticed++
				continue
			case "NOT VIABLE", "SKIPPED":
				continue
			}
			text := ""
			if m.Line > 0 && m.Line <= len(lines) {
				text = strings.TrimSpace(lines[m.Line-1])
			}
			if m.Status == "NOT COVERED" && strings.HasPrefix(text, "case ") {
				s.untried++
				continue
			}
			key := excuse{path: path, fault: m.Type, line: text}
			if slices.Contains(known, key) {
				used[key] = true
				s.excused++
				continue
			}
			s.survivors = append(s.survivors, fmt.Sprintf("%s:%d:%d: %s: %s: %s", path, m.Line, m.Column, strings.ToLower(m.Status), m.Type, text))
		}
	}
	for _, e := range known {
		if filepath.Dir(e.path) == dir && !used[e] {
			s.stale = append(s.stale, e)
		}
	}
	return s, nil
}

// percent is the share of noticed faults among the noticeable ones.
func (s score) percent() int { return 100 * s.noticed / max(1, s.noticed+len(s.survivors)) }

func (s score) String() string {
	var b strings.Builder
	for _, survivor := range s.survivors {
		fmt.Fprintln(&b, survivor)
	}
	for _, e := range s.stale {
		fmt.Fprintf(&b, "%s: excused, and no survivor any more: %s: %s\n", e.path, e.fault, e.line)
	}
	fmt.Fprintf(&b, "%d %%: %d of %d faults are noticed, %d excused, %d in a switch not tried\n",
		s.percent(), s.noticed, s.noticed+len(s.survivors), s.excused, s.untried)
	return b.String()
}

func (s score) verdict() error {
	if s.noticed+len(s.survivors) == 0 {
		return errors.New("no fault was tried: is it a package of this module?")
	}
	if s.percent() < enough {
		return fmt.Errorf("below %d %%", enough)
	}
	return nil
}
