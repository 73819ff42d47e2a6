package run

import (
	"slices"
	"testing"
)

func TestPortsOf(t *testing.T) {
	got, err := portsOf("i", []byte(`{"config":{"ExposedPorts":{"80/tcp":{},"53/udp":{},"443":{}}}}`))
	if want := []string{"443", "53/udp", "80/tcp"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, config := range []string{`{}`, `{"config":{"ExposedPorts":{}}}`, `[]`} {
		if got, err := portsOf("i", []byte(config)); err == nil {
			t.Errorf("%s: %v", config, got)
		}
	}
}
