package convert

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
)

// kataFile begins Kata's annotations for files, and kataHashType is the algorithm of their hashes.
const (
	kataFile     = kataPrefix + "config.hypervisor."
	kataHashType = kataPrefix + "asset_hash_type"
)

// boot selects the files that the VM boots. An annotation needs the file's hash too, and only the administrator's list
// makes a path valid.
func (c *conversion) boot() error {
	for _, one := range []struct {
		kind  FileKind
		to    **File
		field string // of the specification
		path  string
	}{
		{Kernel, &c.plan.Boot.Kernel, "vm.kernel.path", c.vm().Kernel.Path},
		{Initrd, &c.plan.Boot.Initrd, "vm.kernel.initrd", c.vm().Kernel.InitRD},
		{Image, &c.plan.Boot.Image, "vm.image.path", c.vm().Image.Path},
	} {
		ours, err := c.annotated(one.kind, prefix+string(one.kind), prefix+string(one.kind)+"-sha256", "sha256")
		if err != nil {
			return err
		}
		algorithm := c.spec.Annotations[kataHashType]
		if algorithm == "" {
			algorithm = "sha512"
		}
		kata, err := c.annotated(one.kind, kataFile+string(one.kind), kataFile+string(one.kind)+"_hash", algorithm)
		if err != nil {
			return err
		}
		var stated *File
		if one.path != "" {
			if stated = c.allowed(one.kind, one.path); stated == nil {
				return unsupported(one.field, "the administrator has not allowed %.200q as the %s", one.path, one.kind)
			}
		}
		for _, file := range []*File{stated, kata, ours} {
			if file != nil {
				*one.to = file
			}
		}
		if *one.to != nil && c.plan.Kind == oci.Container {
			return unsupported("annotations", "the container joins a VM that has booted, and selects another %s", one.kind)
		}
	}
	if f := c.vm().Image.Format; f != "" && f != "raw" {
		return unsupported("vm.image.format", "%.32q is not raw", f)
	}
	return nil
}

// annotated returns the allowed file of an annotation.
func (c *conversion) annotated(kind FileKind, name, hashName, algorithm string) (*File, error) {
	path, hash := c.spec.Annotations[name], c.spec.Annotations[hashName]
	if path == "" {
		if hash != "" {
			return nil, invalid("annotations."+hashName, "there is no %s", name)
		}
		return nil, nil
	}
	file := c.allowed(kind, path)
	if file == nil {
		return nil, unsupported("annotations."+name, "the administrator has not allowed %.200q as the %s", path, kind)
	}
	want := map[string]string{"sha256": file.SHA256, "sha512": file.SHA512}[algorithm]
	if want == "" || hash != want {
		return nil, unsupported("annotations."+hashName, "it must be the %.16s that the administrator has allowed for %.200q", algorithm, path)
	}
	return file, nil
}

// allowed returns a copy of the administrator's file with that path.
func (c *conversion) allowed(kind FileKind, path string) *File {
	i := slices.IndexFunc(c.Allowed, func(f File) bool { return f.Kind == kind && f.Path == path && f.SHA256+f.SHA512 != "" })
	if i < 0 {
		return nil
	}
	file := c.Allowed[i]
	return &file
}

// vm returns the field vm, or an empty one.
func (c *conversion) vm() specs.VM {
	if c.spec.VM == nil {
		return specs.VM{}
	}
	return *c.spec.VM
}
