package text

import "testing"

const (
	container = "c4a9d8e8ab0b2d1c8a7f6e5d4c3b2a19f8e7d6c5b4a39281706f5e4d3c2b1a09"
	process   = "bf7a6f4bd2fb81301ab231419e76ff81"
)

func TestMessages(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"one line", Plain("a\n b\tc\n"), "a b c"},
		{"ids", Plain("process " + container + "/" + process + ": gone"), "process c4a9d8e8ab0b/bf7a6f4bd2fb: gone"},
		{"digests", Plain("layer sha256:" + container + ": bad"), "layer sha256:" + container + ": bad"},
		{"UIDs", Plain("pod 9353c822-9a39-46f0-b1fc-46aed8bc6f1b"), "pod 9353c822-9a39-46f0-b1fc-46aed8bc6f1b"},
		{
			"a command that is not there",
			CannotRun("agent exec: exec " + process + " in container " + container + ": executable not found: crun exec: " +
				"executable file `x` not found in $PATH: No such file or directory: command ended with exit code 127"),
			"executable file `x` not found in $PATH: No such file or directory",
		},
		{"another reason", CannotRun("mount failed"), "mount failed"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, tc.got, tc.want)
		}
	}
}
