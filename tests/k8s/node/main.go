// The parts of a Kubernetes node as one program, which runs the part that it is called by: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy or coredns.
//
// Upstream ships one program for each part. They share most of their code, so one file is a third of
// the size and one link takes a quarter of the time.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/coredns/coremain"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// The plugins of CoreDNS that the node's Corefile names.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

var parts = map[string]func(){
	"coredns":                 coremain.Run,
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              command(kubeproxy.NewProxyCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet": command(func() *cobra.Command {
		return kubelet.NewKubeletCommand(context.Background())
	}),
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := parts[name]
	if !known {
		names := []string{}
		for part := range parts {
			names = append(names, part)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "%s: call this program by one of the names %s\n", name,
			strings.Join(names, ", "))
		os.Exit(2)
	}
	run()
}
