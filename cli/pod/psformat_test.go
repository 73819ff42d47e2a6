package pod

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	p := api.Pod{
		Name: "web-1", UID: "abc", Sandbox: "def", Namespace: "test", Status: "Error", Phase: "Failed",
		Labels: map[string]string{"app": "web", "x": ""},
	}
	for text, want := range map[string]bool{
		"": true, "name=web": true, "name=db": false, "id=ab": true, "id=de": true, "id=x": false, "status=error": true, "status=exited": true,
		"status=running": false, "label=app": true, "label=app=web": true, "label=app=db": false, "label=x=": true, "label=y": false,
		"namespace=test": true, "name=db name=web": true, "name=web status=running": false,
	} {
		f, err := parseFilters(strings.Fields(text))
		if err != nil || f.match(p) != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{"name", "volume=x", ""} {
		if _, err := parseFilters([]string{text}); err == nil || !strings.Contains(err.Error(), "label=") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestKubernetes: templates with kubectl's fields are distinguished from templates with the fields of ps.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]bool{
		"{.items[*].metadata.name}": true, `{range .items[*]}{.spec.nodeName}{end}`: true, "{.items[0].status.phase}": true,
		"{.items[0]['metadata'].name}": true, "{.items[0]['status']['phase']}": true, "{.items[*].status.conditions[0]}": true,
		"{.items[*].name}": false, "{.items[*].status}": false, `{range .items[*]}{.status}{"\n"}{end}`: false,
	} {
		if got := kubernetes.MatchString("jsonpath=" + template); got != want {
			t.Errorf("%s: %v", template, got)
		}
	}
}
