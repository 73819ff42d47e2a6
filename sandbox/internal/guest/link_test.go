package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestLinkWithoutConnections: ErrSpent uses up a link; any other error of one connection does not.
func TestLinkWithoutConnections(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		broken bool
	}{
		{name: "no connection is left", err: fmt.Errorf("connect: %w", hypervisor.ErrSpent), broken: true},
		{name: "connection refused", err: errors.New("refused")},
	} {
		var broken error
		l := NewLink(func(context.Context) (net.Conn, error) { return nil, tc.err }, false, 0, func(err error) { broken = err })
		if _, err := l.Open(t.Context()); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if errors.Is(broken, tc.err) != tc.broken {
			t.Errorf("%s: broken: %v", tc.name, broken)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
