package pod

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

func TestEnvironment(t *testing.T) {
	pod := onePod("Never", "main")
	pod.Labels, pod.Annotations = map[string]string{"app": "web", "tier": "x"}, map[string]string{"a.b/c": "note"}
	pod.Spec.ServiceAccountName = "robot"
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	container := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "OPTS", Value: "a=b=c"}, {Name: "LATER", Value: "$(LAST)"}, {Name: "BOTH", Value: "$(OPTS) $$(OPTS)"},
		field("NAME", "metadata.name"), field("SPACE", "metadata.namespace"), field("UID", "metadata.uid"), field("APP", "metadata.labels['app']"),
		field("NOTE", "metadata.annotations['a.b/c']"), field("NONE", "metadata.labels['no']"), field("IP", "status.podIP"), field("IPS", "status.podIPs"),
		field("HOST", "status.hostIP"), field("ROBOT", "spec.serviceAccountName"), {Name: "LAST", Value: "$(NAME)"}, {Name: "OPTS", Value: "$(OPTS)!"},
	}}
	got, err := environment(pod, container, []string{"10.0.2.15", "fd00::15"}, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []variable{
		{"OPTS", "a=b=c"}, {"LATER", "$(LAST)"}, {"BOTH", "a=b=c $(OPTS)"}, {"NAME", "web"}, {"SPACE", "default"}, {"UID", "u-1"}, {"APP", "web"},
		{"NOTE", "note"}, {"NONE", ""}, {"IP", "10.0.2.15"}, {"IPS", "10.0.2.15,fd00::15"}, {"HOST", "192.0.2.1"}, {"ROBOT", "robot"}, {"LAST", "web"}, {"OPTS", "a=b=c!"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(variable{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []corev1.EnvVar{field("A", "spec.oops"), {Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}} {
		if _, err := environment(pod, &corev1.Container{Env: []corev1.EnvVar{bad}}, nil, ""); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}
