// Package mounts has the volumes of CSI drivers mounted for a node's pods, and unmounted. What is to be undone is written down
// before it is done, so that the next process undoes what one that was killed has begun. For one volume there is one call
// at a time, however many pods have it.
package mounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/csi/driver"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Driver is a registered one.
type Driver struct {
	Node  csi.NodeClient
	Facts driver.Facts
}

// Options are a Mounter's. All but Logger are required.
type Options struct {
	// Root is the directory below which volumes are mounted, as a kubelet's root. What is mounted below an earlier one stays there.
	Root string
	// Dir is where the records lie.
	Dir    string
	Client kubernetes.Interface
	Node   string
	// Driver is the one of a name, nil for one that is not registered.
	Driver func(name string) *Driver
	// Attached returns when a volume that the node tells that it uses is attached to it, with what its attacher has to say.
	Attached func(ctx context.Context, driver, handle string) (map[string]string, error)
	// Changed is called when InUse has changed; it must not block.
	Changed func()
	Logger  *slog.Logger
}

// Mounter mounts. Its methods may be called at once.
type Mounter struct {
	o       Options
	boot    string
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	all     sync.WaitGroup
	flights singleflight.Group // of Unmount, by the record's file
	locks   locks              // by the record's file, of Mount and Unmount, and then by volume
	tokens  tokenCache
	tending sync.Map   // names of drivers with a round of Tend under way
	tree    sync.Mutex // held while directories are made and removed that volumes share
	// patience is how long Close waits.
	patience time.Duration

	mu      sync.Mutex
	records map[key]*record // never changed, only replaced
	damaged map[key]damaged
	uses    map[key]usage.Volume // as drivers have told them last
}

// endWait is as long as a file system of the host has to answer elsewhere (place).
const endWait = 10 * time.Second

// Open makes a Mounter of what an earlier one has left. The caller calls Close.
func Open(o Options) (*Mounter, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mounter{
		o: o, records: map[key]*record{}, damaged: map[key]damaged{}, uses: map[key]usage.Volume{},
		tokens: tokenCache{client: o.Client}, patience: endWait,
	}
	var err error
	if m.boot, err = procid.BootID(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of CSI volume records: %w", err)
	}
	if err := m.read(); err != nil {
		return nil, err
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// Close ends what is done beside callers. Volumes stay mounted. The error matches place.ErrSilent: something has not ended, since
// the file system of a volume does not answer.
func (m *Mounter) Close() error {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	ended := make(chan struct{})
	go func() { // which the file system's answer ends, or the process
		m.all.Wait()
		close(ended)
	}()
	late := time.NewTimer(m.patience)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return fmt.Errorf("work on a CSI volume did not finish: %w", place.ErrSilent)
	}
}

// read reads the records. What was done in another boot is uncertain.
func (m *Mounter) read() error {
	list, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return fmt.Errorf("read the records of CSI volumes: %w", err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		r, path := &record{}, filepath.Join(m.o.Dir, e.Name())
		err := atomicfile.ReadJSON(path, r)
		if err == nil && m.file(r.key()) != path {
			err = fmt.Errorf("%s is the record of another volume: %w", path, atomicfile.ErrCorrupt)
		}
		if err != nil {
			uid, volume, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".json"), ",")
			lost := damaged{why: err}
			lost.volume, lost.attached = salvage(path)
			m.damaged[key{types.UID(uid), volume}] = lost
			m.o.Logger.Error("cannot tell whether a CSI volume is still mounted", "uid", uid, "volume", volume, "error", err)
			continue
		}
		r.Root = cmp.Or(r.Root, m.o.Root)
		if r.Boot != m.boot {
			r.unsure()
		}
		m.records[r.key()] = r
	}
	return nil
}

// unsure makes of what was done what may be done.
func (r *record) unsure() {
	r.Staged, r.Owned = false, false
	switch r.Phase {
	case staged:
		r.Phase = staging
	case published:
		r.Phase = publishing
	case begun, staging, publishing:
	}
}

// save writes a record down, which then counts. It must not be changed any more.
func (m *Mounter) save(r *record) error {
	r.Boot = m.boot
	if err := atomicfile.WriteJSON(m.file(r.key()), r, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("write the record of a CSI volume: %w", err)
	}
	m.mu.Lock()
	before, lost := m.records[r.key()], m.damaged[r.key()]
	m.records[r.key()] = r
	delete(m.damaged, r.key())
	m.mu.Unlock()
	if lost.attached || r.Attach && (before == nil || !before.Attach) {
		m.o.Changed()
	}
	return nil
}

// forget removes a record of which nothing is left.
func (m *Mounter) forget(r *record) error {
	if err := os.Remove(m.file(r.key())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of a CSI volume: %w", err)
	}
	m.mu.Lock()
	delete(m.records, r.key())
	delete(m.uses, r.key())
	m.mu.Unlock()
	if r.Attach {
		m.o.Changed()
	}
	return nil
}

// get is a record, nil for none.
func (m *Mounter) get(k key) *record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[k]
}

// others are the records of the same volume of a driver, without the one itself.
func (m *Mounter) others(r *record) (out []*record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, o := range m.records {
		if k != r.key() && o.id() == r.id() {
			out = append(out, o)
		}
	}
	return out
}

// list are all records.
func (m *Mounter) list() (out []*record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		out = append(out, r)
	}
	return out
}

// UniqueName is what a Node calls a volume of a driver.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// InUse are the attached volumes that the node may not lose, in order: also those that damaged records may be of.
func (m *Mounter) InUse() (names []corev1.UniqueVolumeName) {
	for _, r := range m.list() {
		if r.Attach {
			names = append(names, UniqueName(r.Driver, r.Handle))
		}
	}
	m.mu.Lock()
	for _, d := range m.damaged {
		if d.attached {
			names = append(names, d.volume)
		}
	}
	m.mu.Unlock()
	slices.Sort(names)
	return slices.Compact(names)
}
