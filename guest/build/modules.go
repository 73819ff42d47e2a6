package build

import "github.com/bulkhead-project/bulkhead/guest/internal/kmod"

// required are the modules a guest cannot do without, whether the kernel has
// them as modules or built in. What they depend on comes with them.
var required = []string{
	"virtio_pci",     // the bus of all virtio devices
	"virtio_console", // the channel to the host
	"virtio_blk",     // image, scratch and volume disks
	"virtio_mem",     // growth
	"virtio_net",     // the pod's network
	"erofs",          // images
	"ext4",           // the scratch disk
	"quota_v2",       // limits of its volumes
	"overlay",        // a container's root
	"fuse",           // shared directories
	"tun",            // VPNs in pods
}

// wanted are taken where the kernel has them. A kernel either has its checksum
// as a module of this name, which erofs and ext4 ask for by an alias only, or
// has it in its library.
var wanted = []string{
	"crc32c_generic",
	"dummy", // interfaces of privileged pods that lead nowhere
}

// parameters are what modules are loaded with. A dummy would begin with an interface.
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
