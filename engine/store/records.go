package store

import (
	"encoding/json"
	"math"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim"
)

// Version is that of the records' stored form.
const Version = 2

const (
	podFile       = "pod.json"
	containerFile = "container.json"
	exitFile      = "exit.json"
	containersDir = "containers"
)

// Phase is how far a pod has come, as the engine sees it.
type Phase string

// The phases. Starting pods are seen by nobody; a Stopped one has no process and no
// network any more.
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
	Key      string `json:"key"` // of its name
	// UID is what the pod has in common with its successors, which take its disk
	// over; empty for none.
	UID string `json:"uid,omitempty"`
	// Title is NAMESPACE/NAME, for messages.
	Title string `json:"title,omitempty"`
	// Volumes says that emptyDirs may lie on the disk, which nothing else outlives.
	Volumes bool  `json:"volumes,omitempty"`
	Phase   Phase `json:"phase"`
	// Record is the door's own, which the engine never reads.
	Record  json.RawMessage `json:"record,omitempty"`
	Created time.Time       `json:"created"`

	Machine   hypervisor.VMConfig `json:"machine"`
	AccelNote string              `json:"accelNote,omitempty"`
	Template  string              `json:"template,omitempty"` // key; absent for a cold boot
	MemoryMiB int                 `json:"memoryMiB"`
	VCPUs     int                 `json:"vcpus,omitempty"` // since it was resized; 0 is as its machine was made
	Owner     *shim.Owner         `json:"owner,omitempty"`
	// Forked says that the VM is a fork, ForkNote why a clone is none.
	Forked   bool   `json:"forked,omitempty"`
	ForkNote string `json:"forkNote,omitempty"`
	// Overhead is what the VM may take on the host beside the pod's own.
	Overhead Overhead `json:"overhead,omitzero"`
	// Asked is the size that the pod was asked for; nil in a record of an earlier version.
	Asked *Size `json:"asked,omitempty"`
	// Sized says that the pod's resources have been told since its start, beside
	// those of its containers.
	Sized bool `json:"sized,omitempty"`

	NetNote string   `json:"networkNote,omitempty"`
	IPs     []string `json:"ips,omitempty"`
	Cards   []string `json:"cards,omitempty"` // the names of its further interfaces
	Ports   []Port   `json:"ports,omitempty"`
	Phases  []Timing `json:"phases,omitempty"`
	// HostPorts says that Ports are all that its processes listen on.
	HostPorts bool `json:"hostPorts,omitempty"`
	// Cgroup is the pod's on the host.
	Cgroup Cgroup `json:"cgroup,omitzero"`
	// ShareServer is the process that serves the host's directories, once there is one.
	ShareServer procid.ID `json:"shareServer,omitzero"`
	// Ring says that its shim knows the disk for large answers of shared directories.
	Ring bool `json:"ring,omitempty"`
	// Exit says why the machine ended, once it has.
	Exit    string    `json:"exit,omitempty"`
	Stopped time.Time `json:"stopped,omitzero"`
}

// Size is what a pod asks for.
type Size struct {
	sizing.Demand `json:"demand"`
	// Limits hold for the pod as a whole and not only as the sum of its
	// containers'.
	Limits agentv1.PodLimits `json:"limits,omitzero"`
}

// Port is a published port; HostPort is the one that it got.
type Port struct {
	HostIP   string `json:"hostIP"`
	HostPort int    `json:"hostPort"`
	PodPort  int    `json:"podPort"`
	Protocol string `json:"protocol,omitempty"` // "udp", or empty for TCP
}

// Cgroup is a group of the host's; without Dirs there is none.
type Cgroup struct {
	Dirs   []string          `json:"dirs,omitempty"`
	Limits hostcgroup.Limits `json:"limits,omitzero"`
	Note   string            `json:"note,omitempty"` // why there is none, or not all of it
	// Parent is the group of another's that it is in, empty where it is among the engine's own.
	Parent string `json:"parent,omitempty"`
}

// Overhead is what a pod's VM may take on the host beside the pod's own; 0 is what
// the engine knows that it takes.
type Overhead struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPU    float64 `json:"cpu,omitempty"`    // a part of each CPU's time
}

// Files is a volume whose files lie in a directory of the host and are copied into
// the guest.
type Files struct {
	Name  string `json:"name"` // of the volume, in the guest
	Dir   string `json:"dir"`
	Group int    `json:"group,omitempty"` // that the copies belong to; 0 is the files' own
}

// Share is a directory or a file of the host that a container mounts.
type Share struct {
	Asked   string `json:"asked"` // as it was named
	SubPath string `json:"subPath,omitempty"`
	Path    string `json:"path"` // as it was found, without links
	// Mount is where its file system was mounted then, empty for not known.
	Mount    string `json:"mount,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Follow   bool   `json:"follow,omitempty"` // mounts that come below it later
	Cache    string `json:"cache"`
	// SetID is of a container's root: what it makes there may be set-user-id.
	SetID bool `json:"setID,omitempty"`
}

// Block is a block device of the host, or a file that stands for one, that a container has.
type Block struct {
	Asked    string `json:"asked"` // as it was named
	Path     string `json:"path"`  // as it was found, without links
	FS       string `json:"fs,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Device is the number of the block device that is there and no other, as stat(2) has it; 0 is
	// any, or a file.
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
	Key     string `json:"key"`  // its name's, of which there is one at a time in a pod
	Name    string `json:"name"` // as messages have it
	// Record is the door's own, which the engine never reads.
	Record  json.RawMessage `json:"record,omitempty"`
	ImageID string          `json:"imageID"`
	// Log is the path of its log on the host; empty is none.
	Log string `json:"log,omitempty"`
	// Quota and Period are its share of the CPUs: negative is no limit, 0 is not
	// stated.
	Quota  int64 `json:"quota,omitempty"`
	Period int64 `json:"period,omitempty"`
	// CPUShares are its weight, 1024 a CPU, and Memory is its limit in bytes. Their zeros are as in sizing.Demand.
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
	// StopSignal is the number of the signal that asks it to end.
	StopSignal int `json:"stopSignal"`
	// Termination is where its last words are and where they go.
	Termination *Termination `json:"termination,omitempty"`
	// User is who its first process is; nil while that is not known.
	User *User `json:"user,omitempty"`
}

// Demand is what the container asks for.
func (c *Container) Demand() sizing.Demand {
	return sizing.Demand{Quota: c.Quota, Period: uint64(max(c.Period, 0)), Shares: c.CPUShares, MemoryLimit: c.Memory}
}

// SetDemand is the inverse of Demand.
func (c *Container) SetDemand(d sizing.Demand) {
	c.Quota, c.Period, c.CPUShares, c.Memory = d.Quota, int64(min(d.Period, math.MaxInt64)), d.Shares, d.MemoryLimit
}

// User is who a container's first process is, as its guest tells it.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Termination says which file of the container is copied, when it has ended,
// to which file of the host.
type Termination struct {
	Container string `json:"container"`
	Host      string `json:"host"`
}

// Exit is how a container ended.
type Exit struct {
	Code    int       `json:"code"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started,omitzero"`
	At      time.Time `json:"at"`
}
