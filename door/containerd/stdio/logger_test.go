package stdio

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a logging program.
func program(t *testing.T, dir, script string) string {
	t.Helper()
	path := filepath.Join(dir, "logger")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLogger: a logging program gets both outputs to their end, and the container's names.
func TestLogger(t *testing.T) {
	for scheme, ready := range map[string]string{"binary": "exec 5>&-", "binary-v2": "echo >&5; exec 5>&-"} {
		dir := t.TempDir()
		path := program(t, dir, `echo "$CONTAINER_NAMESPACE/$CONTAINER_ID" "$@" >args; env >env
cat <&3 >out 4<&- 5>&- & cat <&4 >err 3<&- 5>&- &
exec 3<&- 4<&-
`+ready+`
wait; echo done >ended
`)
		s := openAll(t, Names{Stdout: scheme + "://" + path + "?b=2&a&a=ignored&b=3", Stderr: scheme + "://" + path})
		if _, err := s.Stdout.WriteString("to stdout"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stderr.WriteString("to stderr"); err != nil {
			t.Fatal(err)
		}
		s.Release() // the process has ended
		s.Close()
		for file, want := range map[string]string{"args": "n/c a b 2\n", "out": "to stdout", "err": "to stderr", "ended": "done\n"} {
			if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
				t.Errorf("%s: %s: got %q, %v, want %q", scheme, file, got, err, want)
			}
		}
		if env, err := os.ReadFile(filepath.Join(dir, "env")); err != nil || strings.Contains(string(env), "HOME=") {
			t.Errorf("the environment is %q, %v, want the container's names alone", env, err)
		}
	}
}

// TestLoggerFails: a logging program that does not get ready fails the start, and is gone.
func TestLoggerFails(t *testing.T) {
	short, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx            context.Context
		scheme, script string
	}{
		"ends at once": {bounded(t), "binary-v2", "exit 3"},
		"hangs":        {short, "binary", "echo $$ >pid; exec sleep 1000"},
	} {
		dir := t.TempDir()
		path := program(t, dir, test.script)
		s, err := Open(test.ctx, Names{Stdout: test.scheme + "://" + path}, Owner{})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, %v, want an error with the program's path", name, s, err)
		}
	}
}
