package testnet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Plugins is where Debian's package has CNI's plugins.
const Plugins = "/usr/lib/cni"

// Bridge is the name of the network that WriteBridge configures.
const Bridge = "bulkhead-test"

const bridge = `{"cniVersion": "1.0.0", "name": "bulkhead-test", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1400, "ipam": {"type": "host-local", "dataDir": "DATA",
    "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
  {"type": "bandwidth", "capabilities": {"bandwidth": true}}
]}`

// WriteBridge writes a configuration for CNI into conf: a bridge with addresses of both
// kinds, of which 10.88.0.1 is the node's, published ports and limits of bandwidth. Its
// plugins keep their state in data: a file a lease in data/bulkhead-test.
func WriteBridge(t testing.TB, conf, data string) {
	t.Helper()
	text := strings.ReplaceAll(bridge, "DATA", data)
	if err := os.WriteFile(filepath.Join(conf, "10-bridge.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Leases are the addresses that pods hold of the bridge whose state is in data.
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
