// Watches events with client-go's informer and records with its two recorders; tells what it saw, a JSON line each.
// The first argument is the media type of its requests. client-go 0.20 begins a series with a count of 1, which no
// server accepts, so that its recorder of events.k8s.io records one event here.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

var lines sync.Mutex

func tell(line map[string]interface{}) {
	lines.Lock()
	defer lines.Unlock()
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func seen(kind string, object interface{}) {
	event, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	tell(map[string]interface{}{"type": kind, "name": event.Name})
	if event.Source.Component == "by-client-go" && event.Count == 2 {
		tell(map[string]interface{}{"wrote": event.Name, "count": event.Count})
	}
}

func main() {
	content := rest.ContentConfig{ContentType: os.Args[1]}
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: os.Args[2], ContentConfig: content})
	if err != nil {
		panic(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().Events().Informer()
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object interface{}) { seen("ADDED", object) },
		UpdateFunc: func(_, object interface{}) { seen("MODIFIED", object) },
	})
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "go-0", Namespace: "default", UID: "go"}}
	newer := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	newer.StartRecordingToSink(stop)
	node := &corev1.ObjectReference{Kind: "Node", Name: "n1", APIVersion: "v1"}
	newer.NewRecorder(scheme.Scheme, "example.com/go").Eventf(pod, node, "Normal", "Bound", "Binding", "to %s", "n1")
	bound := metav1.ListOptions{FieldSelector: "reason=Bound"}
	for stored := 0; stored == 0; time.Sleep(100 * time.Millisecond) {
		if list, err := clients.EventsV1().Events("default").List(context.Background(), bound); err == nil {
			stored = len(list.Items)
		}
	}

	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "by-client-go"})
	recorder.Event(pod, corev1.EventTypeWarning, "Seen", "recorded by client-go")
	recorder.Event(pod, corev1.EventTypeWarning, "Seen", "recorded by client-go") // a PATCH: count 2
	time.Sleep(time.Hour)
}
