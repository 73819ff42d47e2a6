package mounts

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
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

// Tend publishes volumes again whose drivers want that, and has those grow whose claims have grown, until ctx ends.
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

// tend goes through all volumes that are published.
func (m *Mounter) tend(ctx context.Context) {
	known := map[string]storagev1.CSIDriverSpec{}
	for _, r := range m.list() {
		rules, is := known[r.Driver]
		if !is {
			var err error
			if rules, err = m.rules(ctx, r.Driver); err != nil {
				m.o.Logger.Warn("CSI volumes are not looked after", "driver", r.Driver, "error", err)
			}
			known[r.Driver] = rules
		}
		if ctx.Err() != nil {
			return
		}
		if err := m.look(ctx, r.key(), rules); err != nil {
			m.o.Logger.Warn("a CSI volume was not looked after", "pod", r.Namespace+"/"+r.Pod, "volume", r.Volume, "error", err)
		}
	}
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
	if !republishes(rules) || r.Block {
		return a.expand(ctx)
	}
	if r.Attach {
		if a.public, err = m.o.Attached(ctx, r.Driver, r.Handle); err != nil {
			return err
		}
	}
	if err := a.stage(ctx); err != nil {
		return err
	}
	request, err := a.request(ctx)
	if err == nil {
		_, err = a.driver.Node.NodePublishVolume(m.ctx, request)
	}
	return errors.Join(err, a.expand(ctx))
}

// Sweep has the volumes unmounted of pods of which there is nothing else, beside the caller and until it succeeds. It is
// called once, before the first Mount.
func (m *Mounter) Sweep(has func(types.UID) bool) {
	for _, r := range m.list() {
		if has(r.UID) {
			continue
		}
		m.o.Logger.Warn("a volume of a pod that is gone is unmounted", "uid", r.UID, "volume", r.Volume, "driver", r.Driver)
		m.all.Go(func() { m.sweep(r.key()) })
	}
}

func (m *Mounter) sweep(k key) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := m.Unmount(m.ctx, k.uid, k.volume)
		if err == nil || m.ctx.Err() != nil {
			return
		}
		m.o.Logger.Warn("a volume of a pod that is gone is unmounted again", "uid", k.uid, "volume", k.volume, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-m.ctx.Done():
		}
		timer.Stop()
	}
}
