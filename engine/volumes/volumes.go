// Package volumes copies volumes of files into a pod, and again whenever the host's files are replaced.
package volumes

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hostpath"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// Limits bound the files of one volume, which the guest holds in memory.
var Limits = atomicdir.Limits{Bytes: 16 << 20, Files: 8192}

// Piece is the size of a volume's part in one call, in bytes.
const Piece = 1 << 20

// retries are the pauses before a volume is retried.
var retries = retry.Pauses{First: 100 * time.Millisecond, Last: 30 * time.Second}

// Replaced reports whether an event in a volume's directory means that its files were replaced, by renaming their
// link.
func Replaced(e fsnotify.Event) bool {
	return filepath.Base(e.Name) == atomicdir.Data && e.Has(fsnotify.Create)
}

// Pod is the interface to the pod.
type Pod interface {
	// Up reports whether the pod runs. changed is closed at the next change.
	Up() (up bool, changed <-chan struct{})
	// Live returns the connection to the pod's shim.
	Live(ctx context.Context) (*link.Conn, error)
	// Watch reports events in a directory that Replaced matches, like dirwatch.Watches.Add.
	Watch(dir string) (changed <-chan struct{}, stop func(), err error)
	// Spawn runs f in a goroutine. Its context ends with the engine; it returns an error if that has ended already.
	Spawn(f func(ctx context.Context)) error
}

// Host describes the host's side of the volumes.
type Host struct {
	Paths  hostpath.Dirs
	Logger *slog.Logger // has the pod's id
}

// Set manages the volumes of one pod. Its methods are safe for concurrent use.
type Set struct {
	pod  Pod
	host Host

	mu    sync.Mutex
	byDir map[string]*files
}

// New returns the volumes of a pod, none at first.
func New(pod Pod, host Host) *Set { return &Set{pod: pod, host: host, byDir: map[string]*files{}} }

// Ensure copies the files into the pod, and from then on follows changes of the host's files.
func (s *Set) Ensure(ctx context.Context, all []store.Files) error {
	for _, f := range all {
		if err := s.of(f).ensure(ctx); err != nil {
			return failure.Wrap(err, "volume %s", f.Name)
		}
	}
	return nil
}

// Resume watches the volumes of an earlier engine again, and sends changes.
func (s *Set) Resume(all []store.Files) {
	for _, f := range all {
		_ = s.pod.Spawn(s.of(f).resume) // no need after the engine's end
	}
}

func (s *Set) of(f store.Files) *files {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byDir[f.Dir]
	if v == nil {
		v = &files{Set: s, Files: f}
		s.byDir[f.Dir] = v
	}
	return v
}

// files is a volume with files on the host, written by a kubelet or package volume, and a copy in the pod. The copy
// follows changes.
type files struct {
	*Set
	store.Files

	mu      sync.Mutex // held while they are sent
	watched bool
}

// ensure returns when the files are in the pod.
func (v *files) ensure(ctx context.Context) error {
	// The watch starts first, so that no change is missed.
	if err := v.startWatch(false); err != nil {
		return err
	}
	return v.send(ctx)
}

// resume is like startWatch for a volume of an earlier engine, but retries until it succeeds.
func (v *files) resume(ctx context.Context) {
	_ = retries.Until(ctx, nil, func() error {
		if up, _ := v.pod.Up(); !up || ctx.Err() != nil {
			return nil //nolint:nilerr // it ends the tries
		}
		return v.startWatch(true)
	}, func(err error) { v.host.Logger.Warn("watch a pod's volume", "volume", v.Name, "error", err) })
}

// startWatch starts to watch the directory, once. If again is set, it sends the files first, because they may have
// changed without a watch.
func (v *files) startWatch(again bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched {
		return nil
	}
	if err := v.host.Paths.Check(v.Dir); err != nil {
		return err
	}
	changed, stop, err := v.pod.Watch(v.Dir)
	if err != nil {
		return fmt.Errorf("watch for changes: %w", err)
	}
	err = v.pod.Spawn(func(ctx context.Context) {
		defer stop()
		v.watch(ctx, changed, again)
	})
	if err != nil {
		stop()
		return err
	}
	v.watched = true
	return nil
}

// watch sends the files when the host's have been replaced, until the pod ends.
func (v *files) watch(ctx context.Context, replaced <-chan struct{}, changed bool) {
	for retries := retries; ; {
		up, renewed := v.pod.Up()
		if !up || ctx.Err() != nil {
			return
		}
		var again <-chan time.Time
		if changed {
			err := v.send(ctx)
			if changed = err != nil; changed {
				v.host.Logger.Warn("send a pod's volume", "volume", v.Name, "error", err)
				again = time.After(retries.Next())
			} else {
				retries.Reset()
			}
		}
		select {
		case <-replaced:
			changed = true
		case <-again:
		case <-renewed:
		case <-ctx.Done():
			return
		}
	}
}

// send copies the files into the pod, unless its copy is up to date.
func (v *files) send(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	set, err := v.read()
	if err != nil {
		return err
	}
	c, err := v.pod.Live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	digest := digestOf(set, v.Group)
	published, err := sendFiles(ctx, c, agentv1.Files{Volume: v.Name})
	if err != nil || published == digest {
		return err
	}
	return v.transfer(ctx, c, set, digest)
}

// read reads the host's files. If the engine is not root, the files belong to its user, and become root's in the
// guest.
func (v *files) read() ([]atomicdir.File, error) {
	parent, name, err := v.host.Paths.Open(v.Dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("read its files: %w", err)
	}
	defer root.Close()
	set, err := atomicdir.Read(root, Limits)
	if err != nil {
		return nil, err
	}
	for i := range set {
		if os.Geteuid() != 0 {
			set[i].UID, set[i].GID = 0, 0
		}
		if v.Group != 0 {
			set[i].GID = v.Group
		}
	}
	return set, nil
}

// digestOf returns the digest of a set of files.
func digestOf(set []atomicdir.File, group int) string {
	slices.SortFunc(set, func(a, b atomicdir.File) int { return strings.Compare(a.Path, b.Path) })
	h := sha256.New()
	number := func(n int) { _ = binary.Write(h, binary.LittleEndian, int64(n)) } // a hash never fails
	number(group)
	for _, f := range set {
		number(len(f.Path))
		h.Write([]byte(f.Path))
		number(int(f.Mode))
		number(f.UID)
		number(f.GID)
		number(len(f.Data))
		h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// transfer sends a set in pieces.
func (v *files) transfer(ctx context.Context, c *link.Conn, set []atomicdir.File, digest string) error {
	req := agentv1.Files{Begin: true}
	size := 0
	flush := func(last bool) error {
		req.Volume, req.Digest, req.Group, req.Commit = v.Name, digest, v.Group, last
		_, err := sendFiles(ctx, c, req)
		req, size = agentv1.Files{}, 0
		return err
	}
	for _, f := range set {
		for first := true; first || len(f.Data) > 0; first = false {
			n := min(len(f.Data), Piece)
			if size > 0 && size+n > Piece {
				if err := flush(false); err != nil {
					return err
				}
			}
			req.Entries = append(req.Entries, agentv1.FileEntry{
				Path: f.Path, Mode: uint32(f.Mode.Perm()), UID: f.UID, GID: f.GID, Data: f.Data[:n],
			})
			size += n + len(f.Path) + 64
			f.Data = f.Data[n:]
		}
	}
	return flush(true)
}

// sendFiles sends a part of a set to the guest, and returns the digest of the published set.
func sendFiles(ctx context.Context, c *link.Conn, f agentv1.Files) (published string, err error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	res, err := c.Ext.Files(ctx, &shimv1.FilesRequest{Files: raw})
	return res.GetDigest(), err
}
