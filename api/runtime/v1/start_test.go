package runtimev1

import "testing"

func TestCommandCode(t *testing.T) {
	for _, tt := range []struct {
		name, reason, message string
		code                  int32
		want                  int
	}{
		{name: "not there", reason: ReasonStart, message: StartMessage("no `x`", 127), code: CodeStart, want: 127},
		{name: "no program", reason: ReasonStart, message: StartMessage("", 126), code: CodeStart, want: 126},
		{name: "a forged message", reason: ReasonStart, message: StartMessage("x (exit code 0)", 127), code: CodeStart, want: 127},
		{name: "another runtime's", reason: ReasonStart, message: "no such file", code: CodeStart, want: 128},
		{name: "too large", reason: ReasonStart, message: StartMessage("x", 1270), code: CodeStart, want: 128},
		{name: "a program's", reason: "Error", message: "x (exit code 0)", code: 3, want: 3},
	} {
		if got := CommandCode(tt.reason, tt.message, tt.code); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
