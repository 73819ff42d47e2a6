package limits

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
)

func TestSysctlNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "../../etc/passwd", "/etc/passwd", "..", "net/../../../x", "no.such.thing"} {
		if err := new(Limits).Sysctls(map[string]string{name: "1"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
