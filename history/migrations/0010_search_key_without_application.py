from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0009_masking'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='searchkey',
            name='product_instance_id',
        ),
    ]
