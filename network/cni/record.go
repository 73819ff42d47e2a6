package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// record holds the arguments that a pod was added with. They are needed to delete it.
type record struct {
	List         []byte         `json:"list"`
	Args         [][2]string    `json:"args"`
	Capabilities map[string]any `json:"capabilities,omitempty"`
}

func (r record) runtimeConf(id, path string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: path, IfName: ifName, Args: r.Args, CapabilityArgs: r.Capabilities}
}

func (p *Provider) path(id string) string { return filepath.Join(p.o.Dir, id+".json") }

func (p *Provider) keep(id string, r record) error {
	if err := dirs.Ensure(p.o.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(p.path(id), r, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("record the network of pod %s: %w", id, err)
	}
	return nil
}

// recordOf returns an error that matches fs.ErrNotExist if there is no record.
func (p *Provider) recordOf(id string) (r record, err error) {
	if err := atomicfile.ReadJSON(p.path(id), &r); err != nil {
		return r, fmt.Errorf("find the network of pod %s: %w", id, err)
	}
	return r, nil
}

func (p *Provider) forget(id string) error {
	if err := os.Remove(p.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of the network of pod %s: %w", id, err)
	}
	return nil
}
