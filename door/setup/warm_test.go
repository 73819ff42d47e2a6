package setup

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
)

// TestWarm: each value of BULKHEAD_WARM separates tenants as documented, or is refused.
func TestWarm(t *testing.T) {
	who := engine.Identity{Name: "p", Namespace: "shop", Labels: map[string]string{"tenant": "red", "example.org/team": "blue"}}
	for _, c := range []struct {
		text    string
		noForks bool
		apart   bool
		tenant  string
		err     string
	}{
		{text: ""},
		{text: "on"},
		{text: "off", noForks: true},
		{text: "namespace", apart: true, tenant: "shop"},
		{text: "label=tenant", apart: true, tenant: "red"},
		{text: "label=example.org/team", apart: true, tenant: "blue"},
		{text: "label=other", apart: true},
		{text: "On", err: `"On" must be on, off, namespace or label=KEY`},
		{text: "label", err: `"label" must be on,`},
		{text: "namespace=shop", err: "must be on,"},
		{text: "label=", err: `"" must be a label name`},
		{text: "label= tenant", err: `" tenant" must be a label name`},
		{text: "label=a=b", err: `"a=b" must be a label name`},
	} {
		t.Run(c.text, func(t *testing.T) {
			noForks, tenant, err := Warm(c.text)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want %s", err, c.err)
				}
				return
			}
			if err != nil || noForks != c.noForks || (tenant != nil) != c.apart {
				t.Fatalf("no forks: %v, tenants: %v, %v", noForks, tenant != nil, err)
			}
			if c.apart && tenant(who) != c.tenant {
				t.Errorf("tenant %q, want %q", tenant(who), c.tenant)
			}
			if c.apart && tenant(engine.Identity{}) != "" {
				t.Error("a pod without the label has a tenant")
			}
		})
	}
}
