package hygiene

// tags are the build tags of the product.
const tags = "containers_image_openpgp,grpcnotrace,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,nri_no_wasm"

const (
	kubernetes = "k8s.io/ sigs.k8s.io/"
	clients    = "k8s.io/client-go/... k8s.io/cri-client/... k8s.io/kubernetes/..."
	above      = "cri/... pod/... door/... cli/..."
)

var walls = []wall{
	{of: "ours", except: "internal/test/... hack/...", direct: true, banned: "internal/test/...",
		reason: "only tests and their tools use test support"},
	{of: "agent/... channel/... guest/... hypervisor/... image/... network/... oci/... sandbox/... share/... shim/... internal/...",
		except: "internal/test/...", banned: "engine/... " + above, reason: "imports run downwards"},
	{of: "agent/... channel/... hypervisor/... sandbox/... shim/...", banned: kubernetes + " go.podman.io/ github.com/spf13/",
		reason: "a pod's own processes are small, and read hostile bytes"},

	// The agent is in every VM's memory, and the emulator translates its code at each start.
	{of: "cmd/bulkhead-agent", banned: "hypervisor/... sandbox/...", reason: "the guest does not know the host"},
	{of: "cmd/bulkhead-agent", banned: "google.golang.org/protobuf/...", reason: "the protocol is JSON, which weighs a tenth"},
	{of: "cmd/bulkhead-agent", banned: "github.com/containerd/", but: "github.com/containerd/errdefs",
		reason: "crun runs the containers"},
	{of: "cmd/bulkhead-agent", banned: "net/http/... log/slog/... os/user", reason: "it is never needed in the guest"},
	{of: "cmd/bulkhead-agent", banned: "os/exec", reason: "only package reaper waits for children"},
	{of: "cmd/bulkhead-agent", banned: "math/rand/...", reason: "clones share its state; the kernel's random numbers are renewed"},
	{of: "cmd/bulkhead-agent", banned: "crypto/...", reason: "the channel needs none, and its self-tests cost time at the start"},

	{of: "cmd/bulkhead-shim cmd/containerd-shim-bulkhead-v2",
		banned: kubernetes + " go.podman.io/ github.com/spf13/ golang.org/x/net/trace github.com/containerd/containerd/v2/...",
		reason: "each pod has such a process, so it must be small"},
	{of: "cmd/bulkhead-shim", banned: "cri/... pod/... image/... network/...", reason: "imports run downwards"},
	{of: "cmd/containerd-shim-bulkhead-v2", banned: "github.com/containerd/containerd/api/services/events/...",
		reason: "those are the events of gRPC clients; the front publishes by ttrpc"},
	{of: "cmd/containerd-shim-bulkhead-v2 api/engine/v1 door/remote/client",
		banned: kubernetes + " go.podman.io/ engine/... cri/... pod/... image/...",
		reason: "a door in its own process is small, and asks the engine by api/engine/v1"},
	{of: "api/engine/v1 door/remote/client", banned: "network/...", reason: "a door in its own process is small"},
	{of: "shim/hostio", banned: "net encoding/json log/slog ours others", but: "internal/memfd internal/progress golang.org/x/sys/",
		reason: "a process of the host has it in its memory for each container"},

	{of: "sandbox/...", banned: "google.golang.org/protobuf/... github.com/containerd/ shim/...", but: "github.com/containerd/errdefs",
		reason: "package shim serves"},
	{of: "sandbox/...", banned: "hypervisor/qemu", reason: "the caller chooses the driver"},
	{of: "sandbox/...", banned: "net/http/...", reason: "it costs 2 MB in each shim"},
	{of: "network", banned: "hypervisor/... k8s.io/", reason: "a network does not know the hypervisor's kinds of networks"},

	{of: "oci", banned: "ours net/http/... os/exec google.golang.org/ " + kubernetes, reason: "the shim and the agent may import it"},
	{of: "hypervisor/...", banned: "ours", but: "hypervisor/... internal/... api/slot api/card",
		reason: "a driver moves bytes between a VM's port and a socket; only higher packages know their meaning"},
	{of: "image/...", banned: "hypervisor/... sandbox/... agent/... engine/... network/... " + above,
		reason: "an image knows nothing of the VMs that use its disks"},
	{of: "image", banned: "image/layer image/erofs image/worker", reason: "the engine reads no image's bytes itself"},
	{of: "engine/...", banned: kubernetes + " volume/... " + above, but: "volume/atomicdir",
		reason: "the engine knows no client's protocol; each door translates its own"},

	{of: "pod/...", banned: "ours " + clients, reason: "pod works over any runtime, and is linked into programs that start in milliseconds",
		except: "pod/manager/...",
		but: "pod/... api/annotations api/container/v1 api/runtime/v1 internal/broadcast internal/place internal/retry internal/ulimit oci " +
			"volume volume/atomicdir volume/layout"},
	{of: "pod/manager/...", banned: "ours " + clients, reason: "a manager works over any runtime and behind any door",
		but: "pod/... api/annotations api/container/v1 api/runtime/v1 oci volume volume/atomicdir volume/layout internal/atomicfile " +
			"internal/broadcast internal/dirs internal/dirwatch internal/errclass internal/fault internal/flock internal/place " +
			"internal/procid internal/retry internal/ulimit internal/userns"},
	{of: "pod/manager/...", direct: true, banned: "net/http", reason: "a door speaks HTTP"},

	{of: "door/run/... door/cri/...", direct: true, reason: "only the engine opens what it opens",
		banned: "guest/... hypervisor/... network/... sandbox/... shim/... agent/... engine/store", but: "shim/stream"},
	{of: "door/run/...", direct: true, reason: "its clients read the streams", banned: "shim/stream"},
	{of: "door/node/...", except: "door/node door/node/runtime/local", direct: true, banned: "engine/...",
		reason: "only local runs pods by an engine"},
	{of: "door/node/config", direct: true, banned: "k8s.io/client-go/... k8s.io/api/...", reason: "the bulkhead command would become larger"},
}

// layers lists, for each package of a layer, the other packages of the layer that it may import. Packages below an internal
// directory may import what the package above it may, and one another.
var layers = map[string]map[string]string{
	"door/node": {
		"":       "events host pods registration resources runtime runtime/local server storage",
		"bounds": "",
		"config": "",
		"events": "",
		"host":   "",
		"usage":  "",

		"pods":                "events pods/control runtime usage",
		"pods/control":        "",
		"registration":        "bounds events host registration/certs",
		"registration/certs":  "bounds",
		"resources":           "events host pods pods/control registration resources/admission runtime",
		"resources/admission": "pods/control",
		"runtime":             "usage",
		"runtime/endpoint":    "runtime",
		"runtime/local":       "runtime usage",
		"server":              "host pods registration/certs runtime usage",
		"storage":             "pods registration usage",
	},
	"pod": {
		"": "config images instance launch logs plan resize watch podstatus podspec probe " +
			"backoff",
		"images":            "config podspec",
		"instance":          "config podspec",
		"launch":            "config instance logs podspec watch",
		"logs":              "config podspec watch",
		"config":            "podspec",
		"plan":              "backoff config images instance podspec podstatus probe resize",
		"podstatus":         "podspec",
		"resize":            "podspec",
		"podapi":            "podspec podapi/fields podapi/jsonnode internal/nearest",
		"podapi/fields":     "",
		"podapi/jsonnode":   "",
		"podspec":           "",
		"probe":             "",
		"watch":             "",
		"backoff":           "",
		"internal/nearest":  "",
		"podapi/fields/gen": "podapi/fields",
		"manager":           "config manager/events manager/logs podspec podstatus probe watch",
		"manager/events":    "",
		"manager/logs":      "logs",
	},
}
