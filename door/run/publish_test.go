package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

const onePod = `apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
`

// A host port of 0 is one that is free, and which is told.
func TestPublishOnAFreePort(t *testing.T) {
	req := api.RunRequest{Manifests: []api.Manifest{{Name: "f", YAML: onePod}}, Ports: []string{"0:80", "8080:81", "[::1]:0:82"}}
	found, err := manifest.Read(req.Manifests, podapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := records(req, found)
	if err != nil {
		t.Fatal(err)
	}
	got := list[0].Ports
	if len(got) != 3 || got[0].HostPort == 0 || got[1].HostPort != 8080 || got[2].HostPort == 0 || got[2].HostIp != "::1" {
		t.Fatalf("ports %v", got)
	}
	var told []string
	if err := tellChosen(req, list, func(m api.Message) error { told = append(told, m.Notice); return nil }); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("port 80 of the pod is published at 127.0.0.1:%d; port 82 of the pod is published at [::1]:%d",
		got[0].HostPort, got[2].HostPort)
	if text := strings.Join(told, "; "); text != want {
		t.Errorf("told %q, want %q", text, want)
	}
	for _, bad := range []string{"http", "192.0.2.1:0:80"} {
		req.Ports = []string{bad}
		if _, err := records(req, found); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
