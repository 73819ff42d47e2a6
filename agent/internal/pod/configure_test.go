package pod

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	good := agentv1.Configure{Entropy: make([]byte, 64), Time: time.Now(), MachineID: strings.Repeat("0a", 16)}
	if err := validate(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*agentv1.Configure){
		"entropy":    func(c *agentv1.Configure) { c.Entropy = nil },
		"time":       func(c *agentv1.Configure) { c.Time = time.Time{} },
		"machine id": func(c *agentv1.Configure) { c.MachineID = "x" },
	} {
		c := good
		change(&c)
		if err := validate(c); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
