// Package api is what the engine's socket speaks: JSON over HTTP on a unix
// socket that only its user can open. A long answer is a stream of Messages,
// one JSON object a line.
//
//	POST   /v1/pods                      RunRequest -> Messages until the pods end, or run when detached
//	GET    /v1/pods?all=                 -> []Pod; all: of every instance. More of the query
//	                                     chooses: namespace; selector, of labels; kind and
//	                                     workload, what they were made from
//	GET    /v1/watch                     -> Messages with the pods, and each that changes; query
//	                                     as above
//	POST   /v1/names                     NamesRequest -> Names: of the pods that documents describe
//	GET    /v1/pods/{ref}                -> v1.Pod as the API would show it
//	GET    /v1/pods/{ref}/sandbox        -> the machine's facts, a map
//	GET    /v1/pods/{ref}/logs           LogOptions in the query -> Messages
//	GET    /v1/pods/{ref}/events?watch=  -> Messages; /v1/events: of every pod
//	GET    /v1/stats?pod=                -> []PodStats; pod, any number of times: only these
//	POST   /v1/pods/{ref}/exec           ExecRequest -> Stream
//	POST   /v1/pods/{ref}/debug          DebugRequest -> Debugged
//	POST   /v1/pods/{ref}/attach         AttachRequest -> Stream
//	POST   /v1/pods/{ref}/copy           CopyRequest -> Stream of a tar stream, framed as an exec's
//	POST   /v1/pods/{ref}/forward        ForwardRequest -> Forward: which ports are meant
//	POST   /v1/pods/{ref}/connect        ConnectRequest -> Stream, one connection to a port
//	GET    /v1/pods/{ref}/console        -> Stream
//	POST   /v1/pods/{ref}/{verb}         stop start pause resume wait: StopRequest -> Result
//	POST   /v1/pods/{ref}/await          AwaitRequest -> Result, when the condition is met
//	POST   /v1/pods/{ref}/kill           KillRequest -> Result
//	POST   /v1/pods/{ref}/update         UpdateRequest -> Result
//	DELETE /v1/pods/{ref}?force=         -> Result
//	GET    /v1/pods/{ref}/manifest?secrets= -> Manifests
//	GET    /v1/images?for=               -> []Image
//	GET    /v1/images/{ref...}?for=      -> ImageDetail
//	POST   /v1/images/prune?all=         -> Pruned; all: also images with a name
//	GET    /v1/system/df                 -> []DiskShare
//	POST   /v1/system/prune?all=&volumes= -> Pruned
//	POST   /v1/jsonpath                  JSONPathRequest -> JSONPathResult
//	POST   /v1/images/pull?for=          PullRequest -> Messages
//	POST   /v1/images/load?for=          LoadRequest -> Messages
//	POST   /v1/images/tag?for=           TagRequest -> Result
//	POST   /v1/images/save?for=          SaveRequest -> Result
//	DELETE /v1/images/{ref...}?for=      -> Result
//	POST   /v1/login                     LoginRequest -> Result
//	GET    /v1/templates                 -> []Template
//	POST   /v1/templates                 TemplateRequest -> Template
//	DELETE /v1/templates/{key}           -> Result
//	GET    /v1/volumes                   -> []Volume
//	POST   /v1/volumes                   VolumeRequest -> Volume
//	GET    /v1/volumes/{name}            -> Volume
//	DELETE /v1/volumes/{name}?force=     -> Result; force: the pods that use it, too
//	POST   /v1/volumes/{name}/resize     VolumeRequest -> Volume
//	POST   /v1/prune/volumes             -> Pruned
//	POST   /v1/reap?all=                 -> Reaped; all: of every instance
//	GET    /v1/version                   -> Version
//	POST   /v1/shutdown                  -> Result; pods run on
package api

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// RunRequest runs the pods of some YAML documents.
type RunRequest struct {
	Manifests []Manifest `json:"manifests"`
	Detach    bool       `json:"detach,omitempty"`
	Remove    bool       `json:"remove,omitempty"` // each pod when it has ended
	Ports     []string   `json:"ports,omitempty"`  // [IP:]HOST:POD
	// IgnoreUnsupported skips what only a cluster can have, with a notice for each
	// kind, instead of refusing it.
	IgnoreUnsupported bool   `json:"ignoreUnsupported,omitempty"`
	Network           string `json:"network,omitempty"`
	// HostLoopback lets the user network run in the host's own namespace where
	// none can be made for it: the pods reach the host's loopback then.
	HostLoopback bool   `json:"hostLoopback,omitempty"`
	Template     string `json:"template,omitempty"` // "on" or "off"
	Warm         string `json:"warm,omitempty"`     // likewise
	Accel        string `json:"accel,omitempty"`
	// Volumes are made if they are missing.
	Volumes []string `json:"volumes,omitempty"`
	// Deadline is how long each pod may be active, in seconds; 0 leaves that to the pod's activeDeadlineSeconds.
	Deadline int64 `json:"deadline,omitempty"`
	// Size is that of the client's terminal, for the containers that have one.
	Size Size `json:"size,omitzero"`
}

// Manifest is one file of YAML documents.
type Manifest struct {
	Name string `json:"name"` // for messages
	YAML string `json:"yaml"`
}

// NamesRequest asks what the pods of documents are called.
type NamesRequest struct {
	Manifests []Manifest `json:"manifests"`
}

// Names are NAMESPACE/NAME of pods.
type Names struct {
	Pods []string `json:"pods"`
}

// KillRequest sends a signal to the first process of a container, or of each one of
// the pod that runs.
type KillRequest struct {
	Container string `json:"container,omitempty"`
	Signal    int    `json:"signal"`
}

// Message is one line of a stream; exactly one field is set.
type Message struct {
	Progress *Progress `json:"progress,omitempty"`
	Started  *Started  `json:"started,omitempty"`
	Log      *Log      `json:"log,omitempty"`
	Notice   string    `json:"notice,omitempty"` // for the user's eyes
	Step     string    `json:"step,omitempty"`   // what is being waited for, until the next message
	Ended    *Ended    `json:"ended,omitempty"`
	Image    *Image    `json:"image,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Pod      *Pod      `json:"pod,omitempty"`   // that has changed; its status is Removed at last
	Error    *Error    `json:"error,omitempty"` // the last line of a failed stream
}

// Progress tells how far a blob of a pull has come, in bytes.
type Progress struct {
	Image string `json:"image"`
	Blob  string `json:"blob"`
	Total int64  `json:"total"` // 0 or less when it is not known
	Done  int64  `json:"done"`
	State string `json:"state,omitempty"` // "pulling", "converting", "done"
}

// Started tells that a pod's sandbox runs, and what each phase of it cost.
type Started struct {
	Pod        Pod      `json:"pod"`
	Containers []string `json:"containers"`
	Phases     []Phase  `json:"phases,omitempty"`
	// VM is how the VM was made.
	VM string `json:"vm,omitempty"`
	// Interactive is the pod's default container if its spec asks for stdin or for
	// a terminal.
	Interactive *Interactive `json:"interactive,omitempty"`
}

// Interactive is a container that somebody may want to attach to.
type Interactive struct {
	Container string `json:"container"`
	Stdin     bool   `json:"stdin,omitempty"`
	TTY       bool   `json:"tty,omitempty"`
}

// Phase is one step of a start.
type Phase struct {
	Name         string `json:"name"`
	Microseconds int64  `json:"us"`
}

// Log is a piece of a container's output. Data need not be a whole line.
type Log struct {
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Stream    string    `json:"stream"` // "stdout" or "stderr"
	Time      time.Time `json:"time"`
	Data      []byte    `json:"data"`
}

// Ended tells how a pod ended.
type Ended struct {
	Pod      string `json:"pod"`
	Phase    string `json:"phase"`
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Pod is a line of ps.
type Pod struct {
	UID        string            `json:"uid"`
	Sandbox    string            `json:"sandbox"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Instance   string            `json:"instance,omitempty"`
	Phase      string            `json:"phase"`  // v1.PodPhase
	Status     string            `json:"status"` // as kubectl's STATUS column
	Ready      int               `json:"ready"`
	Containers int               `json:"containers"`
	Restarts   int               `json:"restarts"`
	IP         string            `json:"ip,omitempty"`
	Ports      []string          `json:"ports,omitempty"`
	Accel      string            `json:"accel,omitempty"`
	Created    time.Time         `json:"created"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// LogOptions choose what of a pod's output is sent. They travel in the query.
type LogOptions struct {
	Container string    `json:"container,omitempty"` // empty: those of spec.containers
	All       bool      `json:"all,omitempty"`       // init and ephemeral containers, too
	Follow    bool      `json:"follow,omitempty"`
	Previous  bool      `json:"previous,omitempty"` // of the run before the newest
	Tail      int64     `json:"tail,omitempty"`     // lines of each container; less than 0: all
	Since     time.Time `json:"since,omitzero"`     // nothing from before
}

// Query is o as the engine reads it.
func (o LogOptions) Query() url.Values {
	q := url.Values{
		"container": {o.Container}, "all": {strconv.FormatBool(o.All)},
		"follow": {strconv.FormatBool(o.Follow)}, "previous": {strconv.FormatBool(o.Previous)},
	}
	q.Set("tail", strconv.FormatInt(o.Tail, 10))
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	return q
}

// ExecRequest runs a command in a container.
type ExecRequest struct {
	Container string   `json:"container,omitempty"` // empty: the pod's default one
	Command   []string `json:"command"`
	TTY       bool     `json:"tty,omitempty"`
	Stdin     bool     `json:"stdin,omitempty"`
	// Size is the terminal's when the command starts.
	Size Size `json:"size,omitzero"`
	// User, as the image knows it ("name", "uid:gid"), Dir and the variables of Env
	// (NAME=VALUE) are the container's where they are not given.
	User string   `json:"user,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// Size is a terminal's; zero is not known.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// DebugRequest adds an ephemeral container to a running pod.
type DebugRequest struct {
	Name    string   `json:"name,omitempty"`   // empty: one is made up
	Image   string   `json:"image,omitempty"`  // empty: the target's, or that of the pod's first container
	Target  string   `json:"target,omitempty"` // the container whose processes it is to see
	Command []string `json:"command,omitempty"`
	TTY     bool     `json:"tty,omitempty"`
	Stdin   bool     `json:"stdin,omitempty"`
	// Size is the terminal's when the container starts.
	Size Size `json:"size,omitzero"`
}

// Debugged names the container that was added.
type Debugged struct {
	Container string `json:"container"`
}

// AttachRequest joins the streams of a container's first process.
type AttachRequest struct {
	Container string `json:"container,omitempty"` // empty: the pod's default one
	Stdin     bool   `json:"stdin,omitempty"`
}

// CopyRequest asks for a tar stream of a path in a container, or with In takes
// one to it. With Into the path is a directory that takes whatever comes; else
// one tree comes, into Path if that is a directory, or as Path.
type CopyRequest struct {
	Container string `json:"container,omitempty"` // empty: the pod's default one
	Path      string `json:"path"`
	In        bool   `json:"in,omitempty"`
	Into      bool   `json:"into,omitempty"`
}

// ForwardRequest names ports of a pod by number or name.
type ForwardRequest struct {
	Ports []string `json:"ports"`
}

// Forward are the ports that a ForwardRequest named, in its order.
type Forward struct {
	UID   string `json:"uid"` // of the pod
	Ports []int  `json:"ports"`
}

// ConnectRequest asks for one connection to a port of a pod.
type ConnectRequest struct {
	Port int `json:"port"`
}

// Stream is where the caller gets the bytes of an exec or console: a unix
// socket of the pod's own shim, and the token that it asks for.
type Stream struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	TTY     bool   `json:"tty,omitempty"` // of attach: the process has a terminal
}

// StopRequest ends a pod.
type StopRequest struct {
	// Grace is the time in seconds between TERM and KILL; nil takes the
	// pod's own.
	Grace *int64 `json:"grace,omitempty"`
}

// AwaitRequest waits for a condition of a pod: "delete", "condition=NAME[=STATUS]",
// "jsonpath=TEMPLATE[=VALUE]" as kubectl wait has them, or "running": ready, or ended
// well. That a pod has ended which will not meet its condition is ErrConflict; of "running" it is Result.Failed, and
// so is a container that ends again and again.
type AwaitRequest struct {
	For string `json:"for"`
}

// UpdateRequest changes what a pod has.
type UpdateRequest struct {
	// Manifests hold ConfigMaps and Secrets, which replace those of the same
	// name that the pod was run with.
	Manifests []Manifest `json:"manifests,omitempty"`
	// Container is whose Limits and Requests change, empty for the first. Those
	// that are not named stay, but a request that was the limit stays that.
	Container string            `json:"container,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"` // by resource: "cpu", "memory"
	Requests  map[string]string `json:"requests,omitempty"`
}

// Result is the answer of what only succeeds or fails; ExitCode is wait's.
type Result struct {
	Pod      string `json:"pod,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
	// Failed, if not nil, is how a pod failed that was awaited to run.
	Failed *Ended `json:"failed,omitempty"`
}

// Image is a line of image ls.
type Image struct {
	ID      string    `json:"id"`
	Names   []string  `json:"names"`
	Digest  string    `json:"digest,omitempty"`
	Size    int64     `json:"size"` // bytes on disk
	Created time.Time `json:"created"`
}

// ImageDetail is all that is known of an image.
type ImageDetail struct {
	Image
	Digests []string        `json:"digests,omitempty"` // repository@digest of every manifest it came by
	Pulled  time.Time       `json:"pulled"`
	Config  json.RawMessage `json:"config"` // OCI, as it came
}

// Pruned is what a prune has removed.
type Pruned struct {
	Pods      []string `json:"pods,omitempty"`
	Images    []string `json:"images,omitempty"`
	Templates []string `json:"templates,omitempty"`
	Volumes   []string `json:"volumes,omitempty"`
	Bytes     int64    `json:"bytes"` // of the disk
	// Failed are the reasons why something that nobody needs is there still.
	Failed []string `json:"failed,omitempty"`
}

// DiskShare is what things of a kind take of the disk.
type DiskShare struct {
	Type        string `json:"type"`
	Total       int    `json:"total"`
	Active      int    `json:"active"` // that are in use
	Bytes       int64  `json:"bytes"`
	Reclaimable int64  `json:"reclaimableBytes"` // by system prune --all
}

// VolumeRequest describes a volume that is to be made, or its new size.
type VolumeRequest struct {
	Name   string            `json:"name,omitempty"`
	Size   string            `json:"size,omitempty"` // as the Kubernetes API has it; empty is 10Gi
	Shared bool              `json:"shared,omitempty"`
	Block  bool              `json:"block,omitempty"` // a bare disk
	Labels map[string]string `json:"labels,omitempty"`
}

// Volume is a line of volume ls.
type Volume struct {
	Name        string            `json:"name"`
	Kind        string            `json:"kind"` // "disk", "shared" or "block"
	Size        int64             `json:"size"` // bytes
	Used        int64             `json:"used"` // bytes on disk
	Created     time.Time         `json:"created"`
	Labels      map[string]string `json:"labels,omitempty"`
	Claim       string            `json:"claim,omitempty"` // NAMESPACE/NAME of the claim it was made for
	AccessModes []string          `json:"accessModes,omitempty"`
	Path        string            `json:"path"`             // on this machine; of a shared one its files'
	Pods        []string          `json:"pods"`             // that name it, ended ones included
	Damage      string            `json:"damage,omitempty"` // why it cannot be used
}

// JSONPathRequest fills a template in with a value, in kubectl's language. With Rows the template is one of
// Go's, and filled in with each item of the value, a list.
type JSONPathRequest struct {
	Rows     bool            `json:"rows,omitempty"`
	Template string          `json:"template"`
	Value    json.RawMessage `json:"value"`
}

// JSONPathResult is the text that came of it.
type JSONPathResult struct {
	Text string `json:"text"`
}

// Manifests are the documents that make a pod, as somebody would write them: its
// ConfigMaps, if they are asked for its Secrets, and the pod, which is the last.
type Manifests struct {
	Documents []map[string]any `json:"documents"`
	Secrets   []string         `json:"secrets,omitempty"` // names of those left out
}

// ImageUsers are the instances that images can be for: for=INSTANCE. Without it they are the engine's own.
var ImageUsers = []string{dirs.CRI, dirs.Node}

// PullRequest names an image of a registry.
type PullRequest struct {
	Image    string `json:"image"`
	Insecure bool   `json:"insecure,omitempty"` // plain HTTP, or a certificate that nobody has signed, will do
}

// LoadRequest names an image on this machine, and the name it gets: oci:DIR[:TAG],
// oci-archive:FILE, docker-archive:FILE, or the path of any of these.
type LoadRequest struct {
	Source string `json:"source"`
	Name   string `json:"name,omitempty"`
}

// TagRequest gives an image more names.
type TagRequest struct {
	Image string   `json:"image"`
	Names []string `json:"names"`
}

// SaveRequest names an image, and the file that it is written to, an archive of
// Format: docker-archive or oci-archive.
type SaveRequest struct {
	Image  string `json:"image"`
	Path   string `json:"path"`
	Format string `json:"format"`
}

// LoginRequest are credentials for a registry, kept in the user's auth.json.
type LoginRequest struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password"`
	Logout   bool   `json:"logout,omitempty"`
	Insecure bool   `json:"insecure,omitempty"` // as in PullRequest
}

// TemplateRequest asks for a template of a size.
type TemplateRequest struct {
	VCPUs   int    `json:"vcpus"`
	Network string `json:"network,omitempty"`
	Accel   string `json:"accel,omitempty"`
}

// Template is a line of template ls.
type Template struct {
	Key     string    `json:"key"`
	Size    int64     `json:"size"` // bytes on disk
	Created time.Time `json:"created"`
	VCPUs   int       `json:"vcpus"`
	Memory  int       `json:"memoryMiB"`
	Accel   string    `json:"accel"`
	Network string    `json:"network"`
	Reason  string    `json:"reason"` // why it was built
}

// Reaped counts what a reap did.
type Reaped struct {
	Adopted int      `json:"adopted"`
	Removed int      `json:"removed"`
	Failed  []string `json:"failed,omitempty"` // tried again at the next reap
	Alive   []string `json:"alive,omitempty"`  // other instances whose engine runs, and does it itself
}

// Version tells the version of every part.
type Version struct {
	Bulkhead string          `json:"bulkhead"`
	Go       string          `json:"go"`
	QEMU     string          `json:"qemu"`
	Kernel   string          `json:"kernel"`
	Crun     string          `json:"crun"`
	Agent    int             `json:"agentProtocol"`
	Extra    json.RawMessage `json:"extra,omitempty"`
}
