// Package agentv1 is the protocol between a sandbox on the host and the agent in its VM.
//
// Each stream of the channel is one call, opened by the host. It begins with a frame that holds a Call, answered by
// a frame that holds a Reply. Streams for stdio and forwarded ports then carry data. The agent trusts the host. The
// host does not trust the agent, and bounds each frame by MaxReply.
package agentv1

import (
	"encoding/json"
	"time"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Version is the version of this protocol. The agent sends its version in the channel's hello. A host supports
// agents of its own version and of the one before.
const Version = 1

// The names of the virtio-serial ports for the channel and for shared directories.
const (
	Port      = "io.bulkhead.channel"
	SharePort = "io.bulkhead.share"
)

// RingDisk is the Name of the disk for large answers of shared directories. It is used only if a slot is free
// before the first directory is mounted.
const RingDisk = "share-ring"

// SharesMount is the Name of the file system with the shared directories, for Unmount. The first container with such a
// directory mounts it.
const SharesMount = "shares"

// The bounds of a frame, in bytes.
const (
	MaxCall  = 4 << 20 // a container's whole specification fits
	MaxReply = 1 << 20
)

// Op names a call.
type Op string

// The calls. The comment names the types of body and answer.
const (
	OpConfigure Op = "configure" // Configure -> Configured
	OpSetTime   Op = "settime"   // SetTime -> -
	OpAdjust    Op = "adjust"    // AdjustTime -> -
	OpPing      Op = "ping"      // - -> Pong
	OpMemory    Op = "memory"    // - -> Memory
	OpMount     Op = "mount"     // Mount -> -
	OpUnmount   Op = "unmount"   // Unmount -> -
	OpGrow      Op = "grow"      // Grow -> -
	OpFlush     Op = "flush"     // - -> -; sync(2), before the VM ends
	OpCreate    Op = "create"    // Create -> Created
	OpStart     Op = "start"     // Process -> -
	OpExec      Op = "exec"      // Exec -> Created; the process runs at return
	OpSignal    Op = "signal"    // Signal -> -
	OpWait      Op = "wait"      // Process -> Exit; as long as it takes
	OpDelete    Op = "delete"    // Process -> Exit; ErrBusy while it runs
	OpResize    Op = "resize"    // Resize -> -
	OpPause     Op = "pause"     // Process -> -; freezes a container
	OpResume    Op = "resume"    // Process -> -
	OpUpdate    Op = "update"    // Update -> -
	OpStats     Op = "stats"     // Process -> Stats
	OpPids      Op = "pids"      // Process -> Pids
	OpList      Op = "list"      // - -> List
	OpOutput    Op = "output"    // Output -> -, then chunks one way and acks the other
	OpInput     Op = "input"     // Input -> Offset, then chunks one way and acks the other
	OpNoReader  Op = "noreader"  // NoReader -> -; the process's writes fail from now on
	OpForward   Op = "forward"   // Forward -> -, then bytes both ways
	OpReadFile  Op = "readfile"  // ReadFile -> File; bounded, of a container's root
	OpPack      Op = "pack"      // Pack -> -, then entries and files' bytes
	OpUnpack    Op = "unpack"    // Unpack -> -, then entries and files' bytes; then -
	OpUsage     Op = "usage"     // - -> Usage
	OpFiles     Op = "files"     // Files -> FilesState
	OpNetwork   Op = "network"   // SetNetwork -> -; of a configured pod
	OpListening Op = "listening" // Listening -> Listening; waits for a change
	OpDatagrams Op = "datagrams" // - -> -, then Datagrams both ways
	OpResolver  Op = "resolver"  // - -> -, then Datagrams: queries one way and answers the other
	OpOOMKills  Op = "oomkills"  // OOMKills -> OOMKills; waits for a change
)

// Call is the first frame of a stream.
type Call struct {
	Op   Op              `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
	// Trace asks for the parts of the call.
	Trace bool `json:"trace,omitempty"`
}

// Reply answers a Call; at most one of Error and Body is set.
type Reply struct {
	Error *Error          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Parts []Part          `json:"parts,omitempty"` // of a traced call
}

// Process names a container's first process (Exec empty) or an exec process.
type Process struct {
	Container string `json:"container"`
	Exec      string `json:"exec,omitempty"`
}

// Configure makes a clone distinct and gives it its pod's identity. It is the first call to a VM and is made once,
// except in a rehearsal.
type Configure struct {
	// Rehearsal means that there is no pod yet: a parent rehearses one. When no container is left, the next
	// Configure replaces all settings of this one.
	Rehearsal bool              `json:"rehearsal,omitempty"`
	Sandbox   string            `json:"sandbox"`
	Entropy   []byte            `json:"entropy"` // 64 bytes of the host's randomness
	Time      time.Time         `json:"time"`
	Hostname  string            `json:"hostname"`
	MachineID string            `json:"machineID"` // 32 hexadecimal digits
	Resolv    string            `json:"resolv"`    // content of /etc/resolv.conf
	Hosts     string            `json:"hosts"`     // content of /etc/hosts
	Sysctls   map[string]string `json:"sysctls,omitempty"`
	Network   *Network          `json:"network,omitempty"`
	// Cards are the additional interfaces, by the numbers of the VM's network cards (package card). The agent waits
	// for the cards.
	Cards    []Network `json:"cards,omitempty"`
	ShmBytes int64     `json:"shmBytes,omitempty"` // size of the pod's /dev/shm; 0 means 64 MiB
	Limits   PodLimits `json:"limits,omitzero"`
	// ScratchBytes limits the use of the scratch disk; 0 means all of it.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
}

// PodLimits apply to all containers of the pod together; 0 means no limit.
type PodLimits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	CPUQuota    int64 `json:"cpuQuota,omitempty"`  // microseconds of each period
	CPUPeriod   int64 `json:"cpuPeriod,omitempty"` // microseconds; 0 is 100000
	VCPUs       int   `json:"vcpus,omitempty"`     // how many of the VM's are online; 0 means no change
}

// Network is the configuration of a guest's interface.
type Network struct {
	// Name is the interface's name; empty keeps the kernel's name.
	Name      string   `json:"name,omitempty"`
	MAC       string   `json:"mac"`
	Addresses []string `json:"addresses"` // CIDR
	Gateways  []string `json:"gateways"`
	MTU       int      `json:"mtu,omitempty"`
	// Routes are additional routes that do not follow from Addresses or Gateways. They can be added in this order.
	Routes []Route `json:"routes,omitempty"`
	// Neighbours are hardware addresses that the guest must not ask for.
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

// Neighbour is a neighbour of the VM on a link.
type Neighbour struct {
	Address string `json:"address"` // IP
	MAC     string `json:"mac"`
}

// Route is a route of the VM.
type Route struct {
	Destination string `json:"destination"`       // CIDR
	Gateway     string `json:"gateway,omitempty"` // empty means on the link itself
	Metric      int    `json:"metric,omitempty"`
}

// SetNetwork replaces the pod's interfaces, by the numbers of the VM's cards: 0 is the first card, and package
// card defines the others. A card without an interface is nil. The agent waits for cards that were just plugged in.
type SetNetwork struct {
	Interfaces []*Network `json:"interfaces"`
	// Resolver makes the agent take queries at 127.0.0.11:53 from now on, for OpResolver.
	Resolver bool `json:"resolver,omitempty"`
}

// Listening lists the ports that processes of the guest listen on: TCP first, sorted by number, at most 256 of each
// protocol.
type Listening struct {
	Ports []ListeningPort `json:"ports"`
}

// ListeningPort is a TCP port, or a UDP port with Datagrams. Loopback means that only the guest's own processes
// reach it.
type ListeningPort struct {
	Port      uint16 `json:"port"`
	Loopback  bool   `json:"loopback,omitempty"`
	Datagrams bool   `json:"datagrams,omitempty"`
}

// Configured reports on the guest.
type Configured struct {
	Kernel string `json:"kernel"` // uname -r
	Crun   string `json:"crun"`   // version
	BootID string `json:"bootID"`
}

// SetTime sets the guest's clock, after each resume.
type SetTime struct {
	Time time.Time `json:"time"`
}

// Pong is the answer to a ping.
type Pong struct {
	// Uptime is the guest's steady clock, in nanoseconds since its boot.
	Uptime time.Duration `json:"uptime"`
	// Time is the guest's time of day.
	Time time.Time `json:"time"`
}

// AdjustTime corrects the guest's clock, gradually if the difference is below half a second.
type AdjustTime struct {
	By time.Duration `json:"by"` // nanoseconds
}

// Memory is the guest's own view of its memory, in bytes.
type Memory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"`
}

// Mount mounts the disk in a slot at the guest's place for Name. Image disks are erofs and read-only; the scratch
// disk is ext4.
type Mount struct {
	Name     string `json:"name"` // "scratch", an image's id, or a volume's name
	Slot     int    `json:"slot"`
	FS       string `json:"fs"` // "erofs" or "ext4"; a volume may have none
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Volume means that it is a block device of the host, of so many Bytes.
	Volume bool  `json:"volume,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
}

// Unmount undoes Mount. It fails with ErrBusy while a container uses the disk.
type Unmount struct {
	Name string `json:"name"`
}

// Grow grows the file system of a writable volume to the size of its disk, which is Bytes according to the host.
type Grow struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Create creates a container, which waits for its start.
type Create struct {
	Container string `json:"container"`
	// A root that is an image, named by the Name of a mounted disk, is an overlay of it on the scratch disk (on
	// tmpfs without one).
	containerv1.RootRecord
	// Spec is the OCI runtime specification (1.0), with the mounts of containerv1.Mount and the extensions in
	// specification.go. Root.Path is ignored. If Username is set, Process.User is resolved in the image's
	// /etc/passwd and /etc/group, as "user", "user:group" or numbers.
	Spec      json.RawMessage `json:"spec"`
	Terminal  bool            `json:"terminal,omitempty"`
	Stdin     bool            `json:"stdin,omitempty"`     // else /dev/null
	StdinOnce bool            `json:"stdinOnce,omitempty"` // closed after the first Input stream ends
}

// Exec runs an additional process in a running container.
type Exec struct {
	Process
	Spec     json.RawMessage `json:"spec"` // OCI process
	Terminal bool            `json:"terminal,omitempty"`
	Stdin    bool            `json:"stdin,omitempty"`
	// KeepStdin keeps the stdin open when an Input stream ends. Otherwise it is closed then.
	KeepStdin bool `json:"keepStdin,omitempty"`
}

// Created returns the process's id in the guest, and the user of a container's first process.
type Created struct {
	PID  int   `json:"pid"`
	User *User `json:"user,omitempty"` // nil for an exec
}

// User is the user of a process, in numbers.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Signal is sent to a process, or with All to all processes of the container.
type Signal struct {
	Process
	Signal int  `json:"signal"`
	All    bool `json:"all,omitempty"`
}

// Exit describes how a process ended. Code is 128+n for signal n.
type Exit struct {
	Code      int       `json:"code"`
	Signal    int       `json:"signal,omitempty"`
	OOMKilled bool      `json:"oomKilled,omitempty"`
	At        time.Time `json:"at"`
	// OOMKills counts the processes of its container that the kernel's OOM killer has killed so far.
	OOMKills uint64 `json:"oomKills,omitempty"`
}

// OOMKills counts the processes that the kernel's OOM killer has killed, by container. Containers without any are left
// out.
type OOMKills struct {
	Kills map[string]uint64 `json:"kills,omitempty"`
}

// Resize sets the size of a terminal.
type Resize struct {
	Process
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// Update changes a container's cgroup; Resources is OCI LinuxResources. Without a container it sets the pod's
// cgroup to Limits.
type Update struct {
	Container string          `json:"container,omitempty"`
	Resources json.RawMessage `json:"resources,omitempty"`
	Limits    PodLimits       `json:"limits,omitzero"`
}

// The type URLs of Stats and PodStats in JSON.
const (
	StatsType    = "io.bulkhead.agent.Stats+json"
	PodStatsType = "io.bulkhead.agent.PodStats+json"
)

// Stats are a container's statistics, read from its cgroup.
type Stats struct {
	At            time.Time `json:"at"`
	CPUUsec       uint64    `json:"cpuUsec"`
	MemoryBytes   uint64    `json:"memoryBytes"`
	MemoryLimit   uint64    `json:"memoryLimit"` // at most the guest's memory
	WorkingSet    uint64    `json:"workingSet"`
	RSS           uint64    `json:"rss"`
	PageFaults    uint64    `json:"pageFaults"`
	MajPageFaults uint64    `json:"majPageFaults"`
	Pids          uint64    `json:"pids"`
	RootfsBytes   uint64    `json:"rootfsBytes"`
	RootfsInodes  uint64    `json:"rootfsInodes"`
}

// Usage holds the pod's counters since the VM's start.
type Usage struct {
	Network *NetUsage `json:"network,omitempty"` // nil if it has no interface
	// Cards are the counters of the additional interfaces of Configure that exist.
	Cards []NetUsage `json:"cards,omitempty"`
	Disk  DiskUsage  `json:"disk"`
	// Volumes are the mounted emptyDirs of the pod, at most MaxVolumes.
	Volumes []VolumeUsage `json:"volumes,omitempty"`
}

// PodStats are the statistics of a VM and of its running containers, by id.
type PodStats struct {
	Memory Memory `json:"memory"`
	Usage
	Containers map[string]Stats `json:"containers,omitempty"`
}

// MaxVolumes bounds the number of volumes in Usage.
const MaxVolumes = 512

// VolumeUsage is the usage and the capacity of an emptyDir, in bytes and files. Without a limit of its own, its
// capacity is the capacity of its file system.
type VolumeUsage struct {
	Name      string `json:"name"`
	Used      uint64 `json:"used"`
	Inodes    uint64 `json:"inodes"`
	Capacity  uint64 `json:"capacity"`
	Available uint64 `json:"available"`
}

// NetUsage holds the counters of an interface of the pod.
type NetUsage struct {
	Name     string `json:"name"`
	RxBytes  uint64 `json:"rxBytes"`
	RxErrors uint64 `json:"rxErrors"`
	TxBytes  uint64 `json:"txBytes"`
	TxErrors uint64 `json:"txErrors"`
}

// DiskUsage counts the bytes of the VM's disks: images and the scratch disk.
type DiskUsage struct {
	ReadBytes  uint64 `json:"readBytes"`
	WriteBytes uint64 `json:"writeBytes"`
}

// Pids are the processes of a container, in the guest's numbers.
type Pids struct {
	Pids []int `json:"pids"`
}

// Status is one process that the agent knows.
type Status struct {
	Process
	PID     int   `json:"pid"`
	Created bool  `json:"created,omitempty"` // not yet started
	Paused  bool  `json:"paused,omitempty"`
	Exit    *Exit `json:"exit,omitempty"`
}

// List is every process that was created and not deleted.
type List struct {
	Processes []Status `json:"processes"`
}

// Output asks for a stream of a process from Offset on ("stdout" or "stderr"; a terminal has only "stdout"). Data
// before Offset counts as acknowledged. A newer Output for the same stream ends the older one.
type Output struct {
	Process
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`
}

// Input feeds a process's stdin. The answer is the offset reached so far.
type Input struct {
	Process
}

// NoReader closes an output of a process for good and discards the bytes that are left. The process then gets SIGPIPE
// when it writes, or SIGHUP if the output is a terminal. The stream "stderr" or "stdout" is as in Output, and an Output
// of it ends at once.
type NoReader struct {
	Process
	Stream string `json:"stream"`
}

// Offset counts the bytes of a stream since its beginning.
type Offset struct {
	Offset int64 `json:"offset"`
}

// Forward connects to a port on the pod's loopback, or on its address if the loopback has no listener.
type Forward struct {
	Port uint16 `json:"port"`
}

// ReadFile reads at most Limit bytes from the end of a container's file, with
// its symbolic links resolved within the container.
type ReadFile struct {
	Container string `json:"container"`
	Path      string `json:"path"`
	Limit     int    `json:"limit"`
}

// File is the answer to ReadFile.
type File struct {
	Data []byte `json:"data"`
}

// Files carries the content of a volume of files, or a part of it. A set of files takes any number of calls: the
// first with Begin, the last with Commit. Commit publishes the whole set at once (package volume/atomicdir) and
// replaces the previous set. A call with neither and no entries asks for the state.
type Files struct {
	Volume string `json:"volume"`
	// Digest identifies the set. A Commit of the published set changes nothing.
	Digest  string      `json:"digest,omitempty"`
	Begin   bool        `json:"begin,omitempty"`
	Commit  bool        `json:"commit,omitempty"`
	Group   int         `json:"group,omitempty"` // of directories; 0 means root's
	Entries []FileEntry `json:"entries,omitempty"`
}

// FileEntry is one file, or data to append to it.
type FileEntry struct {
	Path string `json:"path"` // within the volume
	Mode uint32 `json:"mode"` // permissions
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// FilesState is the digest of a volume's published set, empty for none.
type FilesState struct {
	Digest string `json:"digest,omitempty"`
}
