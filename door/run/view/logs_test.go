package view

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// TestLogQuery parses the query that our client sends.
func TestLogQuery(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	o, err := parseOutput(api.LogOptions{Follow: true, Previous: true, Tail: 7, Since: since}.Query())
	if err != nil || !o.Follow || !o.Previous || o.Tail != 7 || !o.Since.Equal(since) || o.Whole {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOutput(url.Values{}); err != nil || o.Tail != -1 || !o.Since.IsZero() {
		t.Errorf("%+v, %v", o, err)
	}
	for key, bad := range map[string]string{"tail": "many", "since": "yesterday"} {
		if _, err := parseOutput(url.Values{key: {bad}}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s=%s: %v", key, bad, err)
		}
	}
}
