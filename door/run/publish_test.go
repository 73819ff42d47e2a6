package run

import (
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

const onePod = `apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
`

// A host port of 0 chooses a free port, which is reported.
func TestPublishOnAFreePort(t *testing.T) {
	req := api.RunRequest{Manifests: []api.Manifest{{Name: "f", YAML: onePod}}}
	req.Ports = []string{"0:80", "8080-8081:81-82", "[::1]:0:82", "53/udp"}
	found, err := manifest.Read(req.Manifests, podapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := records(req, found)
	if err != nil {
		t.Fatal(err)
	}
	got := list[0].Ports
	if len(got) != 5 || got[0].HostPort == 0 || got[1].HostPort != 8080 || got[2].HostPort != 8081 || got[3].HostPort == 0 ||
		got[3].HostIp != "::1" || got[4].HostPort == 0 || got[4].Protocol != runtimeapi.Protocol_UDP {
		t.Fatalf("ports %v", got)
	}
	var sent []string
	if err := sendChosenPorts(req, list, func(m api.Message) error { sent = append(sent, m.Notice); return nil }); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("port 80 of the pod is published at 127.0.0.1:%d; port 82 of the pod is published at [::1]:%d; "+
		"port 53 of the pod is published at 127.0.0.1:%d/udp", got[0].HostPort, got[3].HostPort, got[4].HostPort)
	if text := strings.Join(sent, "; "); text != want {
		t.Errorf("notices %q, want %q", text, want)
	}
	for _, bad := range []string{"http", "192.0.2.1:0:80"} {
		req.Ports = []string{bad}
		if _, err := records(req, found); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
