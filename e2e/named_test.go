package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// createVolume kills while a volume is created. Afterwards the volume must exist as requested or not at all.
func (k *killing) createVolume(t *testing.T) {
	k.strike(t, func() *command { return k.start(t, "", "volume", "create", "lasting", "--size", "100m") }).wait(t)
	k.checkVolume(t)
}

// removeVolume kills while a volume is removed. Afterwards the volume must be unchanged or gone.
func (k *killing) removeVolume(t *testing.T) {
	k.must(t, "", "volume", "create", "lasting", "--size", "100m")
	k.strike(t, func() *command { return k.start(t, "", "volume", "rm", "lasting") }).wait(t)
	k.checkVolume(t)
}

func (k *killing) checkVolume(t *testing.T) {
	t.Helper()
	k.must(t, "", "reap")
	switch out := k.must(t, "", "volume", "ls", "-o", "jsonpath={range .items[*]}{.name} {.kind} {.size}{.damage}{end}"); out {
	case "", "lasting disk 104857600":
	default:
		t.Errorf("volumes: %q", out)
	}
	k.must(t, "", "volume", "rm", "-f", "lasting")
	k.must(t, "", "volume", "create", "lasting", "--size", "100m")
	k.must(t, "", "volume", "rm", "lasting")
	left, err := os.ReadDir(filepath.Join(k.dir, "data", "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if !strings.HasSuffix(e.Name(), ".lock") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
