module github.com/bulkhead-project/bulkhead

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0 // the configuration of bulkhead cri
	github.com/container-storage-interface/spec v1.13.0 // what drivers of volumes are asked
	github.com/containerd/cgroups/v3 v3.1.3 // a container's statistics, as containerd's clients read them
	github.com/containerd/containerd/api v1.12.0 // the shim's services, as containerd defines them
	github.com/containerd/errdefs v1.0.0 // the classes of errors in all layers
	github.com/containerd/log v0.1.0 // ttrpc's log, sent to ours
	github.com/containerd/nri v0.12.5 // the plugins of a node, NRI
	github.com/containerd/ttrpc v1.2.10 // how containerd talks to a shim
	github.com/containernetworking/cni v1.3.1 // the network plugins of a node
	github.com/cyphar/filepath-securejoin v0.7.0 // mount points in a hostile root
	github.com/docker/distribution v2.8.3+incompatible // a registry's errors, to tell them apart
	github.com/docker/go-units v0.5.0 // sizes, as docker and podman write them
	github.com/erofs/go-erofs v0.3.1 // reads what our writer has written: in tests, and for image save
	github.com/fsnotify/fsnotify v1.10.1 // logs and volumes are followed without polling
	github.com/godbus/dbus/v5 v5.2.2 // units of systemd, as which engines run
	github.com/google/go-cmp v0.7.0 // tests
	github.com/google/go-containerregistry v0.22.1 // tests: a registry that really serves
	github.com/hanwen/go-fuse/v2 v2.12.1 // the FUSE protocol of shared directories
	github.com/hashicorp/yamux v0.1.2 // streams on the one channel to the guest
	github.com/klauspost/compress v1.20.3 // zstd layers, packages and modules
	github.com/mikelolasagasti/xz v1.0.1 // the kernel's package, and archives of images
	github.com/moby/profiles/seccomp v0.2.3 // the system calls of the default profile
	github.com/moby/sys/capability v0.4.0 // the names of the capabilities
	github.com/moby/sys/mountinfo v0.7.2 // which part of a volume a kubelet has mounted
	github.com/opencontainers/go-digest v1.0.0 // digests of images
	github.com/opencontainers/image-spec v1.1.1 // images
	github.com/opencontainers/runtime-spec v1.3.0 // containers
	github.com/pierrec/lz4/v4 v4.1.33 // a compressed kernel
	github.com/prometheus/client_golang v1.25.0 // the metrics of bulkhead cri
	github.com/sirupsen/logrus v1.10.2 // the log of the registry library, sent to ours
	github.com/spf13/cobra v1.10.2 // commands, help, completion, manual pages
	github.com/spf13/pflag v1.0.10 // cobra's flags, to suggest the nearest
	github.com/vishvananda/netlink v1.3.1 // interfaces, routes and tc in a pod's namespace
	go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc v0.72.0 // spans of calls, in the trace of a kubelet
	go.opentelemetry.io/otel v1.47.0 // traces of bulkhead cri
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0 // how they are sent
	go.opentelemetry.io/otel/sdk v1.47.0 // how they are made
	go.opentelemetry.io/otel/trace v1.47.0 // the phases of a start among them
	go.opentelemetry.io/proto/otlp v1.11.0 // what a test reads of them
	go.podman.io/image/v5 v5.42.0 // registries, credentials and policies as podman has them
	go.podman.io/storage v1.65.0 // where podman looks for configuration
	go.yaml.in/yaml/v3 v3.0.5 // lines of documents, for errors
	golang.org/x/crypto v0.58.0 // tests: ssh to hosts
	golang.org/x/net v0.62.0 // proxies by each command's environment; the assembler of seccomp programs
	golang.org/x/sync v0.24.0 // requests that join one another
	golang.org/x/sys v0.49.0 // Linux
	golang.org/x/term v0.47.0 // terminals
	golang.org/x/time v0.15.0 // token buckets: what a guest can drive the engine and its log to
	google.golang.org/grpc v1.85.0 // status codes; probes by grpc
	google.golang.org/protobuf v1.36.12 // the shim's and CRI's messages
	k8s.io/api v0.37.2 // the Pod
	k8s.io/apimachinery v0.37.2 // quantities, names, validation
	k8s.io/client-go v0.37.2 // the API server of a node; jsonpath as kubectl has it
	k8s.io/component-helpers v0.37.2 // a node's lease, and the scheduler's predicates
	k8s.io/cri-api v0.37.2 // the engine's interface
	k8s.io/cri-client v0.37.2 // another runtime below a node
	k8s.io/cri-streaming v0.37.2 // exec, attach and port-forward as kubelets' clients have them
	k8s.io/klog/v2 v2.140.0 // client-go's log, sent to ours
	k8s.io/kubelet v0.37.2 // what a node tells of its pods' use, and how drivers register
	k8s.io/streaming v0.37.2 // what tells an upgrade of a connection
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // the clock of a lease
	sigs.k8s.io/json v0.0.0-20260909141634-11ed52e25bc5 // decoding as strict as the API server's
	sigs.k8s.io/yaml v1.6.0 // YAML by way of JSON
	tags.cncf.io/container-device-interface v1.1.1 // devices of a node, by CDI
	tags.cncf.io/container-device-interface/specs-go v1.1.1 // what they give to containers
)

require (
	cyphar.com/go-pathrs v0.2.5 // indirect
	github.com/Microsoft/go-winio v0.6.3-0.20260930231756-f19d9717deb0 // indirect
	github.com/ProtonMail/go-crypto v1.5.2 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/chzyer/readline v1.5.1 // indirect
	github.com/cloudflare/circl v1.6.3 // indirect
	github.com/containerd/typeurl/v2 v2.3.0 // indirect
	github.com/containers/libtrust v0.0.0-20230121012942-c1716e8a8d01 // indirect
	github.com/containers/ocicrypt v1.3.2 // indirect
	github.com/cpuguy83/go-md2man/v2 v2.0.7 // indirect
	github.com/cyberphone/json-canonicalization v0.0.0-20241213102144-19d51d7fe467 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/distribution/reference v0.6.0 // indirect
	github.com/docker/cli v29.9.0+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.10 // indirect
	github.com/docker/go-connections v0.8.2 // indirect
	github.com/elastic/go-seccomp-bpf v1.6.0 // the numbers of the system calls by name
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.28.0 // indirect
	github.com/go-openapi/swag/cmdutils v0.28.0 // indirect
	github.com/go-openapi/swag/conv v0.28.0 // indirect
	github.com/go-openapi/swag/fileutils v0.28.0 // indirect
	github.com/go-openapi/swag/jsonutils v0.28.0 // indirect
	github.com/go-openapi/swag/loading v0.28.0 // indirect
	github.com/go-openapi/swag/mangling v0.28.0 // indirect
	github.com/go-openapi/swag/netutils v0.28.0 // indirect
	github.com/go-openapi/swag/pools v0.28.0 // indirect
	github.com/go-openapi/swag/stringutils v0.28.0 // indirect
	github.com/go-openapi/swag/typeutils v0.28.0 // indirect
	github.com/go-openapi/swag/yamlutils v0.28.0 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/pgzip v1.2.7 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/manifoldco/promptui v0.9.0 // indirect
	github.com/moby/moby/client v0.6.2 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/sys/user v0.4.1 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/mxk/go-flowrate v0.0.0-20140419014527-cca7078d478f // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/proglottis/gpgme v0.1.6 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/secure-systems-lab/go-securesystemslib v0.11.1 // indirect
	github.com/sigstore/fulcio v1.8.8 // indirect
	github.com/sigstore/protobuf-specs v0.5.2 // indirect
	github.com/sigstore/sigstore v1.10.11 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	github.com/ulikunitz/xz v0.5.17 // indirect
	github.com/vbatts/tar-split v0.12.3 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/component-base v0.37.2 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
