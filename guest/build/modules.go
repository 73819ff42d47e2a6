package build

import "github.com/bulkhead-project/bulkhead/guest/internal/kmod"

// required are the modules that a guest needs, as modules or built in. Their dependencies are added.
var required = []string{
	"virtio_pci",     // the bus of all virtio devices
	"virtio_console", // the channel to the host
	"virtio_blk",     // image, scratch and volume disks
	"virtio_mem",     // memory growth
	"virtio_net",     // the pod's network
	"erofs",          // images
	"ext4",           // the scratch disk
	"quota_v2",       // limits of its volumes
	"overlay",        // a container's root
	"fuse",           // shared directories
	"tun",            // VPNs in pods
}

// wanted are included if the kernel has them. A kernel has crc32c either as a module of this name, which erofs and ext4
// request only by an alias, or in its library.
var wanted = []string{
	"crc32c_generic",
	"dummy", // unconnected interfaces of privileged pods
}

// parameters are the modules' load parameters. By default, dummy creates an interface.
var parameters = map[string]string{"dummy": "numdummies=0"}

func pickModules(dir *kmod.Dir) ([]kmod.Module, error) {
	var names []string
	for _, name := range wanted {
		if dir.Has(name) {
			names = append(names, name)
		}
	}
	return dir.Order(append(names, required...)...)
}
