package crun

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestWords checks the words that docker and podman look for.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ command, message, want string }{
		{"x", "executable file `x` not found in $PATH: No such file or directory", `exec: "x": executable file not found in $PATH`},
		{
			"/bin/x", "executable file `/bin/x` not found in $PATH: No such file or directory",
			`exec: "/bin/x": stat /bin/x: no such file or directory`,
		},
		{"x", "open executable: Permission denied", `exec: "x": permission denied`},
		{"/bin", "open executable: Operation not permitted", `exec: "/bin": permission denied`},
		{"/etc/passwd/x", "open executable: Not a directory", `exec: "/etc/passwd/x": not a directory`},
		{"x", "open executable", `exec: "x": unknown`},
		{"x", "chdir `/a: b`: No such file or directory", `chdir to cwd ("/a: b") set in config.json failed: no such file or directory`},
		{"x", "chdir `/a", ""},
		{"x", "mount `proc` to `proc`: Operation not permitted", ""},
		{"x", "no message", ""},
	} {
		if got := classify("create", tc.message, unix.WaitStatus(1<<8)).Words(tc.command); got != tc.want {
			t.Errorf("%q of %s: %q, want %q", tc.message, tc.command, got, tc.want)
		}
	}
}
