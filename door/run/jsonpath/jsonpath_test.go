package jsonpath

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
)

func TestFill(t *testing.T) {
	const pods = `{"items": [{"name": "a", "restarts": 1, "labels": {"app.io/x": "y"}}, {"name": "b", "restarts": 10000000}]}`
	for template, want := range map[string]string{
		"{.items[0].name}": "a", ".items[1].name": "b", "items[*].name": "a b", "{.items[1].restarts}": "10000000",
		`{range .items[*]}{.name}{"\n"}{end}`: "a\nb\n", `{.items[?(@.restarts==1)].name}`: "a", `{.items[0].labels.app\.io/x}`: "y",
		"{.items[0].nosuch}": "", "x{.no.such}y": "xy", // as in kubectl
		`{.items[0].labels}`: `{"app.io/x":"y"}`,
	} {
		if got, err := Fill(template, []byte(pods)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", template, got, err, want)
		}
	}
	for _, template := range []string{"{.items[", "{.items[5].name}"} {
		if got, err := Fill(template, []byte(pods)); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %q, %v", template, got, err)
		}
	}
}
