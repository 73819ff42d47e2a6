package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestExpand(t *testing.T) {
	values := map[string]string{
		"VAR": "value", "EMPTY": "", "REF": "$(VAR)", "A.B": "dotted", "with space": "spaced", "DOLLAR": "$", "OPEN": "$(",
	}
	lookup := func(name string) (string, bool) { value, found := values[name]; return value, found }
	for _, test := range []struct{ text, want string }{
		// Nothing to replace.
		{"", ""}, {"text", "text"}, {"VAR", "VAR"}, {"(VAR)", "(VAR)"}, {"a)b", "a)b"}, {"%(VAR)", "%(VAR)"}, {"${VAR}", "${VAR}"}, {"#(VAR)", "#(VAR)"},
		// References.
		{"$(VAR)", "value"}, {"-$(VAR)-", "-value-"}, {"$(VAR)$(VAR)", "valuevalue"}, {"$(VAR) $(A.B)", "value dotted"}, {"$(EMPTY)", ""}, {"a$(EMPTY)b", "ab"},
		{"$(with space)", "spaced"}, {"$(VAR)VAR", "valueVAR"}, {"/$(VAR)/$(VAR)/", "/value/value/"},
		// What is put in is not looked at again.
		{"$(REF)", "$(VAR)"}, {"$(DOLLAR)(VAR)", "$(VAR)"}, {"$(OPEN)VAR)", "$(VAR)"}, {"$(DOLLAR)$(VAR)", "$value"},
		// Unknown names stay.
		{"$(NO)", "$(NO)"}, {"a$(NO)b", "a$(NO)b"}, {"$(NO)$(VAR)", "$(NO)value"}, {"$(VAR)$(NO)", "value$(NO)"}, {"$(var)", "$(var)"}, {"$()", "$()"}, {"$( VAR)", "$( VAR)"}, {"$(VAR )", "$(VAR )"},
		// A dollar alone.
		{"$", "$"}, {"a$", "a$"}, {"$a", "$a"}, {"a $ b", "a $ b"}, {"$VAR", "$VAR"}, {"$ (VAR)", "$ (VAR)"}, {"$)", "$)"}, {"$)(VAR)", "$)(VAR)"}, {"$%(VAR)", "$%(VAR)"}, {"10$", "10$"},
		// Two dollars are one.
		{"$$", "$"}, {"$$$", "$$"}, {"$$$$", "$$"}, {"$$VAR", "$VAR"}, {"$$(VAR)", "$(VAR)"}, {"$$$(VAR)", "$value"}, {"$$$$(VAR)", "$$(VAR)"}, {"$$$$$(VAR)", "$$value"}, {"$$$$$$(VAR)", "$$$(VAR)"},
		{"a$$b", "a$b"}, {"$$(NO)", "$(NO)"}, {"$$$(NO)", "$$(NO)"}, {"$(VAR)$$", "value$"}, {"$$(VAR)$(VAR)", "$(VAR)value"}, {"$(VAR)$$(VAR)", "value$(VAR)"},
		// References that are not closed.
		{"$(", "$("}, {"$(VAR", "$(VAR"}, {"a$(VAR", "a$(VAR"}, {"$(VAR$(VAR)", "$(VAR$(VAR)"}, {"$((VAR)", "$((VAR)"}, {"$((VAR))", "$((VAR))"}, {"$$(", "$("}, {"$$(VAR", "$(VAR"}, {"$($$", "$($"},
		// The shell's own.
		{"$(uname -a)", "$(uname -a)"}, {"echo $(date) $(VAR)", "echo $(date) value"}, {"awk '{ print $2 }'", "awk '{ print $2 }'"}, {"$$((1+1))", "$((1+1))"},
		// Beyond ASCII.
		{"ü$(VAR)ü", "üvalueü"}, {"$ü", "$ü"}, {"$(ü)", "$(ü)"},
	} {
		if got := expand(test.text, lookup); got != test.want {
			t.Errorf("expand(%q) is %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$($")
	f.Fuzz(func(t *testing.T, text string) {
		// Where nothing is found only doubled dollars change.
		if got := expand(text, func(string) (string, bool) { return "", false }); len(got) > len(text) {
			t.Errorf("expand(%q) is %q", text, got)
		}
	})
}

func TestStaticCommand(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "$(A)"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{}}}}
	got := StaticCommand(c, []string{"$(A)", "$(B)", "$(C)", "$(D)", "$$(A)", "x$(A)y"})
	if diff := cmp.Diff([]string{"one", "$(A)", "", "$(D)", "$(A)", "xoney"}, got); diff != "" {
		t.Error(diff)
	}
}
