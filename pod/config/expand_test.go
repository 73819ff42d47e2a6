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
		// Text without references.
		{text: ""}, {text: "text", want: "text"}, {text: "VAR", want: "VAR"}, {text: "(VAR)", want: "(VAR)"}, {text: "a)b", want: "a)b"},
		{text: "%(VAR)", want: "%(VAR)"}, {text: "${VAR}", want: "${VAR}"}, {text: "#(VAR)", want: "#(VAR)"},
		// References.
		{text: "$(VAR)", want: "value"}, {text: "-$(VAR)-", want: "-value-"}, {text: "$(VAR)$(VAR)", want: "valuevalue"},
		{text: "$(VAR) $(A.B)", want: "value dotted"}, {text: "$(EMPTY)"}, {text: "a$(EMPTY)b", want: "ab"},
		{text: "$(with space)", want: "spaced"}, {text: "$(VAR)VAR", want: "valueVAR"}, {text: "/$(VAR)/$(VAR)/", want: "/value/value/"},
		// Replacements are not expanded again.
		{text: "$(REF)", want: "$(VAR)"}, {text: "$(DOLLAR)(VAR)", want: "$(VAR)"}, {text: "$(OPEN)VAR)", want: "$(VAR)"},
		{text: "$(DOLLAR)$(VAR)", want: "$value"},
		// Unknown names stay.
		{text: "$(NO)", want: "$(NO)"}, {text: "a$(NO)b", want: "a$(NO)b"}, {text: "$(NO)$(VAR)", want: "$(NO)value"},
		{text: "$(VAR)$(NO)", want: "value$(NO)"}, {text: "$(var)", want: "$(var)"}, {text: "$()", want: "$()"},
		{text: "$( VAR)", want: "$( VAR)"}, {text: "$(VAR )", want: "$(VAR )"},
		// A single dollar.
		{text: "$", want: "$"}, {text: "a$", want: "a$"}, {text: "$a", want: "$a"}, {text: "a $ b", want: "a $ b"},
		{text: "$VAR", want: "$VAR"}, {text: "$ (VAR)", want: "$ (VAR)"}, {text: "$)", want: "$)"}, {text: "$)(VAR)", want: "$)(VAR)"},
		{text: "$%(VAR)", want: "$%(VAR)"}, {text: "10$", want: "10$"},
		// Two dollars become one.
		{text: "$$", want: "$"}, {text: "$$$", want: "$$"}, {text: "$$$$", want: "$$"}, {text: "$$VAR", want: "$VAR"},
		{text: "$$(VAR)", want: "$(VAR)"}, {text: "$$$(VAR)", want: "$value"}, {text: "$$$$(VAR)", want: "$$(VAR)"},
		{text: "$$$$$(VAR)", want: "$$value"}, {text: "$$$$$$(VAR)", want: "$$$(VAR)"},
		{text: "a$$b", want: "a$b"}, {text: "$$(NO)", want: "$(NO)"}, {text: "$$$(NO)", want: "$$(NO)"}, {text: "$(VAR)$$", want: "value$"},
		{text: "$$(VAR)$(VAR)", want: "$(VAR)value"}, {text: "$(VAR)$$(VAR)", want: "value$(VAR)"},
		// References that are not closed.
		{text: "$(", want: "$("}, {text: "$(VAR", want: "$(VAR"}, {text: "a$(VAR", want: "a$(VAR"},
		{text: "$(VAR$(VAR)", want: "$(VAR$(VAR)"}, {text: "$((VAR)", want: "$((VAR)"}, {text: "$((VAR))", want: "$((VAR))"},
		{text: "$$(", want: "$("}, {text: "$$(VAR", want: "$(VAR"}, {text: "$($$", want: "$($"},
		// Shell syntax.
		{text: "$(uname -a)", want: "$(uname -a)"}, {text: "echo $(date) $(VAR)", want: "echo $(date) value"},
		{text: "awk '{ print $2 }'", want: "awk '{ print $2 }'"}, {text: "$$((1+1))", want: "$((1+1))"},
		// Beyond ASCII.
		{text: "ü$(VAR)ü", want: "üvalueü"}, {text: "$ü", want: "$ü"}, {text: "$(ü)", want: "$(ü)"},
	} {
		if got := expand(test.text, lookup); got != test.want {
			t.Errorf("expand(%q) is %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$($")
	f.Fuzz(func(t *testing.T, text string) {
		// If all names are unknown, only doubled dollars change.
		if got := expand(text, func(string) (string, bool) { return "", false }); len(got) > len(text) {
			t.Errorf("expand(%q) is %q", text, got)
		}
	})
}

func TestStaticCommand(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "$(A)"},
		{Name: "C", ValueFrom: &corev1.EnvVarSource{}}}}
	got := StaticCommand(c, []string{"$(A)", "$(B)", "$(C)", "$(D)", "$$(A)", "x$(A)y"})
	if diff := cmp.Diff([]string{"one", "$(A)", "", "$(D)", "$(A)", "xoney"}, got); diff != "" {
		t.Error(diff)
	}
}
