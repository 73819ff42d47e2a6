package mounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// Use returns the usage of a published volume from the driver's last report to Tend, or false if there is none.
func (m *Mounter) Use(uid types.UID, volume string) (usage.Volume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	use, known := m.uses[key{uid, volume}]
	return use, known
}

// Absent reports whether the volume of a driver is not mounted, as after a boot of the host. The files at its place
// then belong to the host. An unknown state counts as absent.
func (m *Mounter) Absent(uid types.UID, volume string) bool {
	m.mu.Lock()
	r := m.records[key{uid, volume}]
	_, lost := m.damaged[key{uid, volume}]
	m.mu.Unlock()
	if r == nil || r.Phase != published {
		return lost || r != nil
	}
	is, err := mounted(r.targetPath())
	return err != nil || !is
}

// measure reads the volume's usage from the driver. A failure drops the last report. The caller holds the volume's
// lock.
func (a *attempt) measure(ctx context.Context) error {
	if !a.driver.Facts.Stats {
		return nil
	}
	use, err := a.use(ctx)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if err != nil {
		delete(a.m.uses, a.r.key())
		return err
	}
	a.m.uses[a.r.key()] = use
	return nil
}

func (a *attempt) use(ctx context.Context) (use usage.Volume, err error) {
	request := &csi.NodeGetVolumeStatsRequest{VolumeId: a.r.Handle, VolumePath: a.r.targetPath()}
	if a.driver.Facts.Stage && !a.r.Inline {
		request.StagingTargetPath = a.r.stagePath()
	}
	got, err := a.driver.Node.NodeGetVolumeStats(ctx, request)
	if err != nil {
		return use, err
	}
	if use, err = useOf(got); err != nil {
		return use, fmt.Errorf("CSI driver %s: NodeGetVolumeStats: %w", a.r.Driver, err)
	}
	return use, nil
}

// useOf converts a driver's report. Only the size is required.
func useOf(report *csi.NodeGetVolumeStatsResponse) (use usage.Volume, err error) {
	for _, one := range report.GetUsage() {
		if one.GetTotal() < 0 || one.GetAvailable() < 0 || one.GetUsed() < 0 {
			return use, fmt.Errorf("the driver reports negative usage: %d used, %d available, %d in total",
				one.GetUsed(), one.GetAvailable(), one.GetTotal())
		}
		total, available, used := uint64(one.GetTotal()), uint64(one.GetAvailable()), uint64(one.GetUsed())
		switch one.GetUnit() {
		case csi.VolumeUsage_BYTES:
			use.Capacity, use.Available, use.Bytes = total, available, used
		case csi.VolumeUsage_INODES:
			use.AllInodes, use.InodesFree, use.Inodes = total, available, used
		case csi.VolumeUsage_UNKNOWN:
		}
	}
	if use.Capacity == 0 {
		return use, errors.New("the driver reports no size of the volume")
	}
	return use, nil
}
