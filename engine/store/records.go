package store

import (
	"encoding/json"
	"math"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim"
)

// Version is the version of the records' format.
const Version = 2

const (
	podFile       = "pod.json"
	containerFile = "container.json"
	exitFile      = "exit.json"
	containersDir = "containers"
)

// Phase is the engine's phase of a pod.
type Phase string

// The phases. Clients do not see Starting pods. A Stopped pod has no process and no network.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Stopped  Phase = "stopped"
	Removing Phase = "removing"
)

func (p Phase) valid() bool {
	switch p {
	case Starting, Ready, Stopped, Removing:
		return true
	}
	return false
}

// Pod is a pod's record.
type Pod struct {
	Version  int    `json:"version"`
	ID       string `json:"id"`
	Instance string `json:"instance"`
	Key      string `json:"key"` // unique in the instance
	// UID is shared by the pod and its successors, which take over its disk; it may be empty.
	UID string `json:"uid,omitempty"`
	// Title is NAMESPACE/NAME, for messages.
	Title string `json:"title,omitempty"`
	// Volumes reports that the disk may contain emptyDirs, which must survive the VM.
	Volumes bool  `json:"volumes,omitempty"`
	Phase   Phase `json:"phase"`
	// Record is the door's own, which the engine never reads.
	Record  json.RawMessage `json:"record,omitempty"`
	Created time.Time       `json:"created"`

	VM        hypervisor.VMConfig `json:"machine"`
	AccelNote string              `json:"accelNote,omitempty"`
	Template  string              `json:"template,omitempty"` // key; absent for a cold boot
	MemoryMiB int                 `json:"memoryMiB"`
	VCPUs     int                 `json:"vcpus,omitempty"` // since a resize; 0 means the number at the start
	Owner     *shim.Owner         `json:"owner,omitempty"`
	// Forked reports that the VM is a fork. ForkNote says why a clone is not a fork.
	Forked   bool   `json:"forked,omitempty"`
	ForkNote string `json:"forkNote,omitempty"`
	// Overhead is the VM's additional use of the host beyond the pod's own.
	Overhead Overhead `json:"overhead,omitzero"`
	// Asked is the requested size; nil in a record of an earlier version.
	Asked *Size `json:"asked,omitempty"`
	// Sized reports that the pod's resources were set as a whole since its start.
	Sized bool `json:"sized,omitempty"`

	NetNote string   `json:"networkNote,omitempty"`
	IPs     []string `json:"ips,omitempty"`
	Cards   []string `json:"cards,omitempty"` // names of additional interfaces
	Ports   []Port   `json:"ports,omitempty"`
	Phases  []Timing `json:"phases,omitempty"`
	// HostPorts reports that Ports follow the ports that its processes listen on.
	HostPorts bool `json:"hostPorts,omitempty"`
	// Namespace is the client's network namespace around the pod; nil if the engine does nothing there.
	Namespace *Namespace `json:"namespace,omitempty"`
	// Cgroup is the pod's cgroup on the host.
	Cgroup Cgroup `json:"cgroup,omitzero"`
	// ShareServer is the process that serves the host's directories, if any.
	ShareServer procid.ID `json:"shareServer,omitzero"`
	// Ring reports that its shim supports the disk for large answers of shared directories.
	Ring bool `json:"ring,omitempty"`
	// Exit says why the VM ended, or is empty.
	Exit    string    `json:"exit,omitempty"`
	Stopped time.Time `json:"stopped,omitzero"`
}

// Size is the requested size of a pod.
type Size struct {
	sizing.Demand `json:"demand"`
	// Limits apply to the pod as a whole.
	Limits agentv1.PodLimits `json:"limits,omitzero"`
}

// Port is a published port; HostPort is the port that was chosen.
type Port struct {
	HostIP   string `json:"hostIP"`
	HostPort int    `json:"hostPort"`
	PodPort  int    `json:"podPort"`
	Protocol string `json:"protocol,omitempty"` // "udp", or empty for TCP
}

// Namespace is a client's network namespace.
type Namespace struct {
	// Held is an end of a pair of package network/adopt/inside.
	network.Held `json:"held"`
	// Publish asks for the ports that the pod's processes listen on. Ports are those that are open in the namespace.
	Publish bool   `json:"publish,omitempty"`
	Ports   []Port `json:"ports,omitempty"`
	// Resolver asks for the name server of the namespace in the guest.
	Resolver bool `json:"resolver,omitempty"`
}

// Cgroup is a cgroup on the host; without Dirs there is none.
type Cgroup struct {
	Dirs   []string          `json:"dirs,omitempty"`
	Limits hostcgroup.Limits `json:"limits,omitzero"`
	Note   string            `json:"note,omitempty"` // why it is missing or incomplete
	// Parent is the existing cgroup around it; empty if it is among the engine's own.
	Parent string `json:"parent,omitempty"`
}

// Overhead is a VM's additional use of the host beyond the pod's own; 0 selects the engine's default.
type Overhead struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPU    float64 `json:"cpu,omitempty"`    // a share of each CPU's time
}

// Files is a volume of files. They lie in a directory of the host and are copied into the guest.
type Files struct {
	Name  string `json:"name"` // of the volume, in the guest
	Dir   string `json:"dir"`
	Group int    `json:"group,omitempty"` // of the copies; 0 keeps the files' own
}

// Share is a directory or a file of the host that a container mounts.
type Share struct {
	Asked   string `json:"asked"` // as requested
	SubPath string `json:"subPath,omitempty"`
	Path    string `json:"path"` // without links
	// Mount is the mount point of its file system at that time; empty if unknown.
	Mount    string `json:"mount,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Follow   bool   `json:"follow,omitempty"` // mounts that appear below it later
	Cache    string `json:"cache"`
	// SetID is set for a container's root: the container may create set-user-id files there.
	SetID bool `json:"setID,omitempty"`
	// Staging is the mount namespace that Path belongs to; the zero value means the engine's.
	Staging Staging `json:"staging,omitzero"`
}

// Staging is a mount namespace with a container's directories and files of the host. A door makes it, and a process
// holds it open.
type Staging struct {
	Holder procid.ID `json:"holder"`
	FD     int       `json:"fd"` // of the holder
	// Users are the mappings of the holder's user namespace. They are zero if that is the engine's.
	Users userns.Mappings `json:"users,omitzero"`
}

// Block is a block device of the host, or a file used as one, that a container has.
type Block struct {
	Asked    string `json:"asked"` // as requested
	Path     string `json:"path"`  // without links
	FS       string `json:"fs,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Device is the required device number as in stat(2); 0 accepts any device, or a file.
	Device uint64 `json:"device,omitempty"`
}

// Timing is one phase of the start.
type Timing struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Container is a container's record.
type Container struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Key     string `json:"key"`  // unique among the pod's containers
	Name    string `json:"name"` // for messages
	// Record is the door's own, which the engine never reads.
	Record  json.RawMessage `json:"record,omitempty"`
	ImageID string          `json:"imageID"`
	// Log is the path of its log on the host; it may be empty.
	Log string `json:"log,omitempty"`
	// Quota and Period are its CPU limit. A negative quota means no limit, 0 means not stated.
	Quota  int64 `json:"quota,omitempty"`
	Period int64 `json:"period,omitempty"`
	// CPUShares is its CPU weight, 1024 for each CPU. Memory is its limit in bytes. Zero values are as in
	// sizing.Demand.
	CPUShares uint64 `json:"cpuShares,omitempty"`
	Memory    int64  `json:"memory,omitempty"`
	// Files are the volumes of files that it mounts.
	Files []Files `json:"files,omitempty"`
	// Shares are the host's directories that it mounts.
	Shares []Share `json:"shares,omitempty"`
	// Blocks are the block devices that it has.
	Blocks  []Block   `json:"blocks,omitempty"`
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	// StopSignal is the number of its stop signal.
	StopSignal int `json:"stopSignal"`
	// Termination locates its termination message.
	Termination *Termination `json:"termination,omitempty"`
	// User is the user of its first process; nil if unknown.
	User *User `json:"user,omitempty"`
}

// Demand returns the resources that the container asks for.
func (c *Container) Demand() sizing.Demand {
	return sizing.Demand{Quota: c.Quota, Period: uint64(max(c.Period, 0)), Shares: c.CPUShares, MemoryLimit: c.Memory}
}

// SetDemand is the inverse of Demand.
func (c *Container) SetDemand(d sizing.Demand) {
	c.Quota, c.Period, c.CPUShares, c.Memory = d.Quota, int64(min(d.Period, math.MaxInt64)), d.Shares, d.MemoryLimit
}

// User is the user of a container's first process, as reported by the guest.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Termination names a file of the container and a file of the host. The first is copied to the second after the
// exit.
type Termination struct {
	Container string `json:"container"`
	Host      string `json:"host"`
}

// Exit describes how a container ended.
type Exit struct {
	Code    int       `json:"code"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started,omitzero"`
	At      time.Time `json:"at"`
}
