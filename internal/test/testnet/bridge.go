package testnet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Plugins is the directory of the CNI plugins in Debian's package.
const Plugins = "/usr/lib/cni"

// Bridge is the name of the network of WriteBridge.
const Bridge = "bulkhead-test"

const bridge = `{"cniVersion": "1.0.0", "name": "bulkhead-test", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1400, "ipam": {"type": "host-local", "dataDir": "DATA",
    "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
  {"type": "bandwidth", "capabilities": {"bandwidth": true}}
]}`

// WriteBridge writes a CNI configuration into conf: a bridge with IPv4 and IPv6 addresses, published ports and
// bandwidth limits. The node has 10.88.0.1. Its plugins keep their state in data: one file per lease in
// data/bulkhead-test.
func WriteBridge(t testing.TB, conf, data string) {
	t.Helper()
	text := strings.ReplaceAll(bridge, "DATA", data)
	if err := os.WriteFile(filepath.Join(conf, "10-bridge.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Leases returns the addresses of pods on the bridge with its state in data.
func Leases(t testing.TB, data string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(data, Bridge))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			out = append(out, name)
		}
	}
	return out
}
