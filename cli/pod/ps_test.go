package pod

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestPsTable(t *testing.T) {
	pods := []api.Pod{
		{
			Name:       "web",
			Namespace:  "default",
			UID:        "2e2e0289-eeb1-4",
			Ready:      1,
			Containers: 2,
			Status:     "Running",
			Ports:      []string{"127.0.0.1:8080->80"},
			Accel:      "tcg",
			Created:    time.Now(),
		},
		{Name: "db", Namespace: "default", UID: "short", Status: "Completed", Created: time.Now()},
	}
	for _, tc := range []struct{ namespace, want string }{
		{"default", "" +
			"NAME  READY  STATUS     RESTARTS  AGE  PORTS               ACCEL  UID\n" +
			"web   1/2    Running    0         0s   127.0.0.1:8080->80  tcg    2e2e0289-eeb\n" +
			"db    0/0    Completed  0         0s   -                   -      short\n"},
		{"other", "" +
			"NAMESPACE  NAME  READY  STATUS     RESTARTS  AGE  PORTS               ACCEL  UID\n" +
			"default    web   1/2    Running    0         0s   127.0.0.1:8080->80  tcg    2e2e0289-eeb\n" +
			"other      db    0/0    Completed  0         0s   -                   -      short\n"},
	} {
		pods[1].Namespace = tc.namespace
		var w bytes.Buffer
		if err := psTable(&w, pods, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, w.String()); diff != "" {
			t.Error(diff)
		}
	}
}
