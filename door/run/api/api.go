// Package api defines the protocol of the engine's socket: JSON over HTTP on a unix socket that only its user can open.
// A long answer is a stream of Messages, one JSON object on each line.
//
//	POST   /v1/pods                      RunRequest -> Messages until the pods end, or run when detached
//	GET    /v1/pods?all=                 -> []Pod; all: of every instance. Other keys of the query
//	                                     select pods: namespace; selector (labels); kind and
//	                                     workload (the pods' owner)
//	GET    /v1/watch                     -> Messages with the pods, then each changed pod; query
//	                                     as above
//	POST   /v1/names                     NamesRequest -> Names of the pods in documents
//	GET    /v1/pods/{ref}                -> v1.Pod as in the Kubernetes API
//	GET    /v1/pods/{ref}/sandbox        -> engine.Facts of the VM
//	GET    /v1/pods/{ref}/logs           LogOptions in the query -> Messages
//	GET    /v1/pods/{ref}/events?watch=  -> Messages; /v1/events: of every pod
//	GET    /v1/stats?pod=                -> []PodStats; pod: only these (repeatable)
//	POST   /v1/pods/{ref}/exec           ExecRequest -> Stream
//	POST   /v1/pods/{ref}/debug          DebugRequest -> Debugged
//	POST   /v1/pods/{ref}/attach         AttachRequest -> Stream
//	POST   /v1/pods/{ref}/copy           CopyRequest -> Stream of a tar stream, framed as an exec's
//	POST   /v1/pods/{ref}/forward        ForwardRequest -> Forward, the ports' numbers
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
//	POST   /v1/images/prune?all=         -> Pruned; all: also named images
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
//	DELETE /v1/volumes/{name}?force=     -> Result; force: also removes the pods that use it
//	POST   /v1/volumes/{name}/resize     VolumeRequest -> Volume
//	POST   /v1/prune/volumes             -> Pruned
//	POST   /v1/reap?all=                 -> Reaped; all: of every instance
//	GET    /v1/version                   -> Version
//	POST   /v1/shutdown                  -> Result; pods keep running
package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// RunRequest runs the pods of YAML documents.
type RunRequest struct {
	Manifests []Manifest `json:"manifests"`
	Detach    bool       `json:"detach,omitempty"`
	Remove    bool       `json:"remove,omitempty"` // remove each pod when it has ended
	Ports     []string   `json:"ports,omitempty"`  // [IP:]HOST:POD
	// IgnoreUnsupported skips objects that only a cluster can have, with a notice for each kind, instead of
	// refusing them.
	IgnoreUnsupported bool   `json:"ignoreUnsupported,omitempty"`
	Network           string `json:"network,omitempty"`
	// HostLoopback allows the user network to run in the host's network namespace if no namespace can be created
	// for it. The pods then reach the host's loopback.
	HostLoopback bool   `json:"hostLoopback,omitempty"`
	Template     string `json:"template,omitempty"` // "on" or "off"
	Warm         string `json:"warm,omitempty"`     // "on" or "off"
	Accel        string `json:"accel,omitempty"`
	// Volumes are named volumes. The engine creates missing ones.
	Volumes []string `json:"volumes,omitempty"`
	// Deadline is the longest active time of each pod, in seconds. 0 leaves it to the pod's activeDeadlineSeconds.
	Deadline int64 `json:"deadline,omitempty"`
	// Size is the size of the client's terminal, for containers with a terminal.
	Size Size `json:"size,omitzero"`
}

// Manifest is one file of YAML documents.
type Manifest struct {
	Name string `json:"name"` // for messages
	YAML string `json:"yaml"`
}

// NamesRequest asks for the names of the pods in documents.
type NamesRequest struct {
	Manifests []Manifest `json:"manifests"`
}

// Names are pods as NAMESPACE/NAME.
type Names struct {
	Pods []string `json:"pods"`
}

// KillRequest sends a signal to the first process of one container, or of every running container of the pod.
type KillRequest struct {
	Container string `json:"container,omitempty"`
	Signal    int    `json:"signal"`
}

// Message is one line of a stream. Exactly one field is set.
type Message struct {
	Progress *Progress `json:"progress,omitempty"`
	Started  *Started  `json:"started,omitempty"`
	Log      *Log      `json:"log,omitempty"`
	Notice   string    `json:"notice,omitempty"` // shown to the user
	Step     string    `json:"step,omitempty"`   // the step being waited for, until the next message
	Ended    *Ended    `json:"ended,omitempty"`
	Image    *Image    `json:"image,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Pod      *Pod      `json:"pod,omitempty"`   // a changed pod; after its removal its status is Removed
	Error    *Error    `json:"error,omitempty"` // the last line of a failed stream
}

// Progress reports the progress of one blob of a pull, in bytes.
type Progress struct {
	Image string `json:"image"`
	Blob  string `json:"blob"`
	Total int64  `json:"total"` // 0 or less if unknown
	Done  int64  `json:"done"`
	State string `json:"state,omitempty"` // "pulling", "converting", "done"
}

// Started reports that a pod's sandbox runs, and the duration of each phase of its start.
type Started struct {
	Pod        Pod      `json:"pod"`
	Containers []string `json:"containers"`
	Phases     []Phase  `json:"phases,omitempty"`
	// VM says how the VM was created.
	VM string `json:"vm,omitempty"`
	// Interactive is the pod's default container if its spec asks for stdin or a terminal.
	Interactive *Interactive `json:"interactive,omitempty"`
}

// Interactive is a container that a client may want to attach to.
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

// Log is a piece of a container's output. Data may be a part of a line.
type Log struct {
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Stream    string    `json:"stream"` // "stdout" or "stderr"
	Time      time.Time `json:"time"`
	Data      []byte    `json:"data"`
}

// Ended reports how a pod ended.
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

// LogOptions select the output to send. They travel in the query.
type LogOptions struct {
	Container string    `json:"container,omitempty"` // empty: all of spec.containers
	All       bool      `json:"all,omitempty"`       // also init and ephemeral containers
	Follow    bool      `json:"follow,omitempty"`
	Previous  bool      `json:"previous,omitempty"` // of the run before the current one
	Tail      int64     `json:"tail,omitempty"`     // lines of each container; negative: all
	Since     time.Time `json:"since,omitzero"`     // output since this time
}

// Query encodes o for the engine.
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
	Container string   `json:"container,omitempty"` // empty: the pod's default container
	Command   []string `json:"command"`
	TTY       bool     `json:"tty,omitempty"`
	Stdin     bool     `json:"stdin,omitempty"`
	// Size is the terminal's size when the command starts.
	Size Size `json:"size,omitzero"`
	// User ("name" or "uid:gid", as in the image), Dir and the variables of Env (NAME=VALUE) override the
	// container's.
	User string   `json:"user,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// Size is the size of a terminal. Zero means unknown.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// DebugRequest adds an ephemeral container to a running pod.
type DebugRequest struct {
	Name    string   `json:"name,omitempty"`   // empty: the engine chooses one
	Image   string   `json:"image,omitempty"`  // empty: the image of the target, or of the pod's first container
	Target  string   `json:"target,omitempty"` // the container that shares its processes
	Command []string `json:"command,omitempty"`
	TTY     bool     `json:"tty,omitempty"`
	Stdin   bool     `json:"stdin,omitempty"`
	// Size is the terminal's size when the container starts.
	Size Size `json:"size,omitzero"`
}

// Debugged names the new container.
type Debugged struct {
	Container string `json:"container"`
}

// AttachRequest joins the streams of a container's first process.
type AttachRequest struct {
	Container string `json:"container,omitempty"` // empty: the pod's default container
	Stdin     bool   `json:"stdin,omitempty"`
}

// CopyRequest asks for a tar stream of a path in a container, or with In sends one to it. With Into, Path is a
// directory that accepts any entries. Otherwise one tree arrives: into Path if Path is a directory, else as Path.
type CopyRequest struct {
	Container string `json:"container,omitempty"` // empty: the pod's default container
	Path      string `json:"path"`
	In        bool   `json:"in,omitempty"`
	Into      bool   `json:"into,omitempty"`
}

// ForwardRequest names ports of a pod by number or name.
type ForwardRequest struct {
	Ports []string `json:"ports"`
}

// Forward has the numbers of the ports in a ForwardRequest, in its order.
type Forward struct {
	UID   string `json:"uid"` // of the pod
	Ports []int  `json:"ports"`
}

// ConnectRequest asks for one connection to a port of a pod.
type ConnectRequest struct {
	Port int `json:"port"`
}

// Stream says where the caller gets the bytes of an exec, attach, copy or console: a unix socket of the pod's shim,
// and the token that it requires.
type Stream struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	TTY     bool   `json:"tty,omitempty"` // for attach: the process has a terminal
}

// StopRequest stops a pod.
type StopRequest struct {
	// Grace is the time in seconds between SIGTERM and SIGKILL. nil means the pod's own.
	Grace *int64 `json:"grace,omitempty"`
}

// AwaitRequest waits for a condition of a pod: "delete", "condition=NAME[=STATUS]" or "jsonpath=TEMPLATE[=VALUE]"
// as in kubectl wait, or "running": ready, or ended successfully. If a pod has ended and cannot meet the condition,
// the error is ErrConflict. For "running", Result.Failed describes a pod that failed or a container that crashes
// repeatedly.
type AwaitRequest struct {
	For string `json:"for"`
}

// UpdateRequest changes a pod's ConfigMaps, Secrets and resources.
type UpdateRequest struct {
	// Manifests contain ConfigMaps and Secrets, which replace those of the same name that the pod was run with.
	Manifests []Manifest `json:"manifests,omitempty"`
	// Container is the container to change the Limits and Requests of; empty means the first. Other resources stay
	// the same, but a request that was equal to its limit follows the limit.
	Container string            `json:"container,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"` // by resource: "cpu", "memory"
	Requests  map[string]string `json:"requests,omitempty"`
}

// Result is the answer of a call without other results. ExitCode is set by wait.
type Result struct {
	Pod      string `json:"pod,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
	// Failed describes the failure of a pod that was awaited to run, nil if it did not fail.
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

// ImageDetail describes one image completely.
type ImageDetail struct {
	Image
	Digests []string        `json:"digests,omitempty"` // repository@digest of each manifest that it came from
	Pulled  time.Time       `json:"pulled"`
	Config  json.RawMessage `json:"config"` // OCI, unchanged
}

// Pruned lists what a prune removed.
type Pruned struct {
	Pods      []string `json:"pods,omitempty"`
	Images    []string `json:"images,omitempty"`
	Templates []string `json:"templates,omitempty"`
	Volumes   []string `json:"volumes,omitempty"`
	Bytes     int64    `json:"bytes"` // freed on the disk
	// Failed has the reasons why unused things were not removed.
	Failed []string `json:"failed,omitempty"`
}

// Skip records that something could not be removed, and the prune continues. It returns the error if the client
// has disconnected.
func (p *Pruned) Skip(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	p.Failed = append(p.Failed, err.Error())
	return nil
}

// DiskShare is the disk usage of one type of things.
type DiskShare struct {
	Type        string `json:"type"`
	Total       int    `json:"total"`
	Active      int    `json:"active"` // in use
	Bytes       int64  `json:"bytes"`
	Reclaimable int64  `json:"reclaimableBytes"` // freed by system prune --all
}

// Add adds one thing. A prune frees it if it is not used.
func (s *DiskShare) Add(bytes int64, used bool) {
	s.Total, s.Bytes = s.Total+1, s.Bytes+bytes
	if used {
		s.Active++
	} else {
		s.Reclaimable += bytes
	}
}

// VolumeRequest describes a volume to create, or its new size.
type VolumeRequest struct {
	Name   string            `json:"name,omitempty"`
	Size   string            `json:"size,omitempty"` // a quantity of the Kubernetes API; empty is 10Gi
	Shared bool              `json:"shared,omitempty"`
	Block  bool              `json:"block,omitempty"` // a disk without a file system
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
	Claim       string            `json:"claim,omitempty"` // NAMESPACE/NAME of the claim that it was created for
	AccessModes []string          `json:"accessModes,omitempty"`
	Path        string            `json:"path"`             // on the host; of a shared volume, the path of its files
	Pods        []string          `json:"pods"`             // pods that name it, ended ones included
	Damage      string            `json:"damage,omitempty"` // why it cannot be used
}

// JSONPathRequest fills in a template in kubectl's language with a value. With Rows, the template is a Go template
// that is filled in with each item of the value, a list.
type JSONPathRequest struct {
	Rows     bool            `json:"rows,omitempty"`
	Template string          `json:"template"`
	Value    json.RawMessage `json:"value"`
}

// JSONPathResult is the resulting text.
type JSONPathResult struct {
	Text string `json:"text"`
}

// Manifests are the documents that create a pod, in the form that users write: its ConfigMaps, its Secrets if they
// are requested, and last the pod.
type Manifests struct {
	Documents []map[string]any `json:"documents"`
	Secrets   []string         `json:"secrets,omitempty"` // names of omitted Secrets
}

// ImageUsers are the instances with their own images: for=INSTANCE. Without it, the engine's own images are meant.
var ImageUsers = []string{dirs.CRI, dirs.Node}

// PullRequest names an image of a registry.
type PullRequest struct {
	Image    string `json:"image"`
	Insecure bool   `json:"insecure,omitempty"` // accept plain HTTP and unverified certificates
}

// LoadRequest names an image on the host and the name that it gets: oci:DIR[:TAG], oci-archive:FILE,
// docker-archive:FILE, or the path of any of these.
type LoadRequest struct {
	Source string `json:"source"`
	Name   string `json:"name,omitempty"`
}

// TagRequest adds names to an image.
type TagRequest struct {
	Image string   `json:"image"`
	Names []string `json:"names"`
}

// SaveRequest names an image and the archive to write. Format is docker-archive or oci-archive.
type SaveRequest struct {
	Image  string `json:"image"`
	Path   string `json:"path"`
	Format string `json:"format"`
}

// LoginRequest has the credentials of a registry, to be kept in the user's auth.json.
type LoginRequest struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password"`
	Logout   bool   `json:"logout,omitempty"`
	Insecure bool   `json:"insecure,omitempty"` // as in PullRequest
}

// TemplateRequest asks for a template of this size.
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

// Reaped counts the results of a reap.
type Reaped struct {
	Adopted int      `json:"adopted"`
	Removed int      `json:"removed"`
	Failed  []string `json:"failed,omitempty"` // the next reap tries again
	Alive   []string `json:"alive,omitempty"`  // other instances with a running engine, which reaps by itself
}

// Version has the versions of all parts.
type Version struct {
	Bulkhead string          `json:"bulkhead"`
	Go       string          `json:"go"`
	QEMU     string          `json:"qemu"`
	Kernel   string          `json:"kernel"`
	Crun     string          `json:"crun"`
	Agent    int             `json:"agentProtocol"`
	Extra    json.RawMessage `json:"extra,omitempty"`
}
