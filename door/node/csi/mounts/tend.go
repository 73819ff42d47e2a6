package mounts

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/csi/driver"
)

const (
	// tendEvery is how often volumes are looked at that are published.
	tendEvery = time.Minute
	// lookTimeout bounds how long the API server may hold up who wants to unmount one.
	lookTimeout = 10 * time.Second
	// firstPause and lastPause bound the pauses between attempts to unmount what belongs to no pod.
	firstPause = time.Second
	lastPause  = time.Minute
)

// Tend publishes volumes again whose drivers want that, has those grow whose claims have grown, and asks what lies in them, until
// ctx ends. Close waits for what is under way then.
func (m *Mounter) Tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.tend(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tend begins a round of each driver that has none under way: one that hangs holds up no other.
func (m *Mounter) tend(ctx context.Context) {
	drivers := map[string][]key{}
	for _, r := range m.list() {
		drivers[r.Driver] = append(drivers[r.Driver], r.key())
	}
	for name, keys := range drivers {
		if _, busy := m.tending.LoadOrStore(name, true); busy {
			continue
		}
		if !m.begin() {
			return
		}
		go func() { // Close waits for it
			defer m.all.Done()
			defer m.tending.Delete(name)
			m.round(ctx, name, keys)
		}()
	}
}

// round goes through the volumes of one driver, until a call of it has timed out: the next round begins with any of them.
func (m *Mounter) round(ctx context.Context, name string, keys []key) {
	rules, err := m.rules(ctx, name)
	if err != nil {
		m.o.Logger.Warn("republishing CSI volumes failed", "driver", name, "error", err)
	}
	for _, k := range keys {
		if ctx.Err() != nil {
			return
		}
		err := m.look(ctx, k, rules)
		if err != nil {
			m.o.Logger.Warn("republishing a CSI volume failed", "driver", name, "uid", k.uid, "volume", k.volume, "error", err)
		}
		if timedOut(err) {
			return
		}
	}
}

// timedOut tells whether a driver has not answered in time.
func timedOut(err error) bool {
	var failed *driver.Error
	return errors.As(err, &failed) && failed.Code == codes.DeadlineExceeded
}

// look looks after one volume, if it is published still.
func (m *Mounter) look(ctx context.Context, k key, rules storagev1.CSIDriverSpec) error {
	r := m.get(k)
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	unlock, err := m.locks.lock(ctx, r.id())
	if err != nil {
		return err
	}
	defer unlock()
	if r = m.get(k); r == nil || r.Phase != published {
		return nil
	}
	a := &attempt{m: m, r: r, rules: rules, driver: m.o.Driver(r.Driver)}
	if a.driver == nil {
		return nil // it comes again, or the pod ends
	}
	if err := a.republish(ctx); err != nil {
		return err
	}
	if err = a.expand(ctx); timedOut(err) {
		return err
	}
	return errors.Join(err, a.measure(ctx))
}

// republish publishes the volume once more, if its driver wants that.
func (a *attempt) republish(ctx context.Context) (err error) {
	if !republishes(a.rules) || a.r.Block {
		return nil
	}
	if a.r.Attach {
		if a.public, err = a.m.o.Attached(ctx, a.r.Driver, a.r.Handle); err != nil {
			return err
		}
	}
	if err := a.stage(ctx); err != nil {
		return err
	}
	request, err := a.request(ctx)
	if err != nil {
		return err
	}
	_, err = a.driver.Node.NodePublishVolume(a.m.ctx, request)
	return err
}

// Sweep has the volumes unmounted of pods of which there is nothing else, beside the caller and until it succeeds. It is
// called once, before the first Mount.
func (m *Mounter) Sweep(has func(types.UID) bool) {
	for _, r := range m.list() {
		if has(r.UID) {
			continue
		}
		m.o.Logger.Warn("unmounting a volume of a removed pod", "uid", r.UID, "volume", r.Volume, "driver", r.Driver)
		m.all.Go(func() { m.sweep(r.key()) })
	}
}

func (m *Mounter) sweep(k key) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := m.Unmount(m.ctx, k.uid, k.volume)
		if err == nil || m.ctx.Err() != nil {
			return
		}
		m.o.Logger.Warn("unmounting a volume of a removed pod failed, retrying", "uid", k.uid, "volume", k.volume, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-m.ctx.Done():
		}
		timer.Stop()
	}
}
