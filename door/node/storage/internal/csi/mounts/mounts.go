// Package mounts mounts and unmounts the volumes of CSI drivers for a node's pods. It records each step before it
// starts, so that the next process can undo the steps of a killed one. Only one call at a time runs for a volume,
// however many pods use it.
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

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Driver is a registered driver.
type Driver struct {
	Node  csi.NodeClient
	Facts driver.Facts
}

// Options configure a Mounter. All but Logger are required.
type Options struct {
	// Root is the directory below which volumes are mounted, as a kubelet's root. Volumes below an earlier root stay
	// there.
	Root string
	// Dir is the directory of the records.
	Dir    string
	Client kubernetes.Interface
	Node   string
	// Driver returns the registered driver of a name, or nil.
	Driver func(name string) *Driver
	// Attached waits until a volume that the node reports in use is attached. It returns the attacher's metadata.
	Attached func(ctx context.Context, driver, handle string) (map[string]string, error)
	// Changed is called when InUse has changed. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Mounter mounts volumes. It is safe for concurrent use.
type Mounter struct {
	o       Options
	boot    string
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	all     sync.WaitGroup
	flights singleflight.Group // of Unmount, by the record's file
	locks   locks              // of Mount and Unmount: first by the record's file, then by volume
	tokens  tokenCache
	tending sync.Map   // names of drivers with a running round of Tend
	tree    sync.Mutex // held while shared directories of volumes are created and removed
	// patience is how long Close waits.
	patience time.Duration

	mu      sync.Mutex
	records map[key]*record // replaced, never changed
	damaged map[key]damaged
	uses    map[key]usage.Volume // from the drivers' last reports
}

// endWait equals the time that package place gives a file system of the host to answer.
const endWait = 10 * time.Second

// Open returns a Mounter that continues with the records of an earlier one. The caller calls Close.
func Open(o Options) (*Mounter, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
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

// Close stops background work and waits for it. Volumes stay mounted. The error matches place.ErrSilent if some work
// did not stop, because the file system of a volume does not answer.
func (m *Mounter) Close() error {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends when the file system answers, or with the process
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

// read reads the records. Steps from another boot are uncertain.
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
			lost.volume, lost.attached = readDamaged(path)
			m.damaged[key{types.UID(uid), volume}] = lost
			m.o.Logger.Error("cannot tell whether a CSI volume is still mounted", "uid", uid, "volume", volume, "error", err)
			continue
		}
		r.Root = cmp.Or(r.Root, m.o.Root)
		if r.Boot != m.boot {
			r.markUncertain()
		}
		m.records[r.key()] = r
	}
	return nil
}

// markUncertain changes finished steps to uncertain ones.
func (r *record) markUncertain() {
	r.Staged, r.Owned = false, false
	switch r.Phase {
	case staged:
		r.Phase = staging
	case published:
		r.Phase = publishing
	case begun, staging, publishing:
	}
}

// save writes a record and stores it. The caller must not change it afterwards.
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

// removeRecord removes the record of an unmounted volume.
func (m *Mounter) removeRecord(r *record) error {
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

// get returns a record, or nil.
func (m *Mounter) get(k key) *record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[k]
}

// others returns the other records of the same volume.
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

// list returns all records.
func (m *Mounter) list() (out []*record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		out = append(out, r)
	}
	return out
}

// UniqueName returns the name of a driver's volume in a Node's status.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// InUse returns the attached volumes that the node uses, sorted. It includes volumes that damaged records may belong
// to.
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
