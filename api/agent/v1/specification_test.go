package agentv1

import "testing"

func TestNamespaceIsParsedAsPrinted(t *testing.T) {
	for _, container := range []string{"", "c1", "bulkhead.pod"} {
		if got, ok := ParseNamespace(Namespace(container)); !ok || got != container {
			t.Errorf("%q is read back as %q, %v", container, got, ok)
		}
	}
	for _, path := range []string{"", "/proc/1/ns/pid", "bulkhead.container:", "bulkhead.pods"} {
		if got, ok := ParseNamespace(path); ok {
			t.Errorf("%q is read as %q", path, got)
		}
	}
}
