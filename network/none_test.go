package network

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// TestNoNetwork: processes of a pod without traffic are not in the host's network namespace.
func TestNoNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can create a network namespace without a user namespace")
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]Provider{"none": None{}, "restricted": &User{kind: KindRestricted}} {
		a, err := p.Attach(t.Context(), Request{ID: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command("/bin/sh", "-c", "readlink /proc/self/ns/net; cat /proc/net/dev")
		cmd.Stdout = &out
		if err := a.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); bytes.Contains(out.Bytes(), []byte(host)) || !bytes.Contains(out.Bytes(), []byte("net:[")) {
			t.Errorf("%s: in the host's namespace:\n%s", name, got)
		}
	}
}
